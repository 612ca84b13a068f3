// A kernel that reports what it reads of the views and numbers that it captures.
#include <trireme/tensor/kernel_arguments.hpp>

#include <trireme/base/check.hpp>

#include <array>
#include <cstdint>

namespace trireme {
namespace {

constexpr std::size_t numbers = 10;

KOKKOS_INLINE_FUNCTION std::int64_t address_of(const void* pointer) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(pointer));
}

}  // namespace

void check_kernel_arguments(const Exec& exec) {
  const Kokkos::View<std::int64_t*, Memory> memory("kernel arguments", numbers);
  const View1<std::int64_t> found(memory.data(), numbers);
  // The kernel does not read the addresses.
  const auto address = [](std::uintptr_t n) { return reinterpret_cast<const float*>(n); };
  const View1<const float> vector(address(0x100), 2);
  const std::int32_t small = 3;
  const View2<const float> matrix(address(0x200), 5, 7);
  const double real = 11;
  const View4<const float> heads(address(0x300), 13, 17, 19, 23);
  const std::int64_t large = 29;
  Kokkos::parallel_for(
      "tensor/kernel_arguments", Kokkos::RangePolicy<Exec>(exec, 0, 1),
      KOKKOS_LAMBDA(std::int64_t) {
        found(0) = address_of(vector.data());
        found(1) = static_cast<std::int64_t>(vector.extent(0));
        found(2) = small;
        found(3) = address_of(matrix.data());
        found(4) = static_cast<std::int64_t>(matrix.extent(0));
        found(5) = static_cast<std::int64_t>(matrix.extent(1));
        found(6) = static_cast<std::int64_t>(real);
        found(7) = address_of(heads.data());
        found(8) = static_cast<std::int64_t>(heads.extent(3));
        found(9) = large;
      });
  exec.fence();
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), memory);
  constexpr std::array<std::int64_t, numbers> given{0x100, 2, 3, 0x200, 5, 7, 11, 0x300, 23, 29};
  for (std::size_t i = 0; i < numbers; ++i)
    check(host(i) == given[i], "a kernel read ", host(i), " where it was given ", given[i],
          ": the compiler placed the kernel's arguments differently for the host and for the "
          "device, and "
          "results would be wrong. This is known of CUDA 12.9 and newer with Kokkos before 4.7.02: "
          "build "
          "Trireme with a newer Kokkos, or configure Kokkos with "
          "-DKokkos_ENABLE_IMPL_VIEW_LEGACY=ON");
}

}  // namespace trireme
