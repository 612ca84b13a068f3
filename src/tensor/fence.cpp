#include <trireme/tensor/fence.hpp>

#include <atomic>

namespace trireme {
namespace {
std::atomic<std::int64_t> fences{0};
}

void fence(const Exec& exec, [[maybe_unused]] const char* reason) {
  ++fences;
#if KOKKOS_VERSION >= 30500
  exec.fence(reason);
#else
  exec.fence();
#endif
}

std::int64_t fence_count() {
  return fences.load();
}

}  // namespace trireme
