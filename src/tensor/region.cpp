#include <trireme/tensor/region.hpp>

#include <Kokkos_Core.hpp>

namespace trireme {

Region::Region(const char* name) : open_(Kokkos::Tools::profileLibraryLoaded()) {
  if (open_) Kokkos::Tools::pushRegion(name);
}

Region::~Region() {
  if (open_) Kokkos::Tools::popRegion();
}

}  // namespace trireme
