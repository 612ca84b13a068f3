#pragma once

#include <trireme/base/narrow.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

// With these, nvcc lays captured views out differently for the host and for the device (see
// kernel_arguments.hpp).
#if defined(__NVCC__) && defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_IMPL_VIEW_LEGACY)
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1209 && \
    defined(MDSPAN_IMPL_USE_ATTRIBUTE_NO_UNIQUE_ADDRESS) &&      \
    !defined(MDSPAN_IMPL_USE_FAKE_ATTRIBUTE_NO_UNIQUE_ADDRESS)
#error \
    "CUDA 12.9 and newer with this Kokkos give kernels wrong arguments: use Kokkos 4.7.02 or newer, or configure Kokkos with -DKokkos_ENABLE_IMPL_VIEW_LEGACY=ON"
#endif
#endif

/// Aliases of Kokkos' view types. View1 to View4 do not own memory: each view is a window into an
/// arena or another buffer. Shape legend: B batch, S sequence, T = B·S tokens, D hidden, H heads, K
/// head size, F feed-forward, V vocabulary, L layers. The last axis of a shape is contiguous.
namespace trireme {

using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;
using Device = Kokkos::Device<Exec, Memory>;
using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;

template <class T>
using View1 = Kokkos::View<T*, Kokkos::LayoutRight, Device, Unmanaged>;
template <class T>
using View2 = Kokkos::View<T**, Kokkos::LayoutRight, Device, Unmanaged>;
template <class T>
using View3 = Kokkos::View<T***, Kokkos::LayoutRight, Device, Unmanaged>;
template <class T>
using View4 = Kokkos::View<T****, Kokkos::LayoutRight, Device, Unmanaged>;

/// A vector in plain host memory, which it does not own.
template <class T>
using HostView1 = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace, Unmanaged>;

/// Host memory for transfers between a device and MPI or a file. With Kokkos 4 or newer, it is
/// page-locked for devices, so that copies run at the link's rate. A StagingBuffer owns its memory.
#if KOKKOS_VERSION >= 40000
using StagingMemory = Kokkos::SharedHostPinnedSpace;
#else
using StagingMemory = Kokkos::HostSpace;
#endif
using StagingBuffer = Kokkos::View<std::byte*, StagingMemory>;

/// Builds with TRIREME_AS_ON_DEVICE run device code on hosts, to test it without a device.
#if defined(TRIREME_AS_ON_DEVICE)
inline constexpr bool as_on_device = true;
#else
inline constexpr bool as_on_device = false;
#endif

/// True where a kernel's body runs on the host, so that `#pragma omp simd` loops provide the lanes.
inline constexpr bool exec_on_host =
    !as_on_device &&
    bool(Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, Memory>::accessible) &&
    bool(Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible);

/// Number of threads per team, for Kokkos' team policies: chosen by Kokkos. Where a host runs
/// device code, two threads if available, so that a missing barrier has effects.
inline auto team_threads([[maybe_unused]] const Exec& exec) {
  if constexpr (as_on_device)
    return exec.concurrency() > 1 ? 2 : 1;
  else
    return Kokkos::AUTO;
}

/// The type in which sums over stored numbers are accumulated: fp32 or wider.
template <class T>
struct AccumulateOf {
  using type = float;
};
template <>
struct AccumulateOf<double> {
  using type = double;
};
template <class T>
using Accumulate = typename AccumulateOf<std::remove_const_t<T>>::type;

/// Elements [first, first + n) of a vector.
template <class T>
View1<T> part(const View1<T>& all, std::int64_t first, std::int64_t n) {
  return View1<T>(all.data() + first, static_cast<std::size_t>(n));
}

/// A vector, or its beginning, as a matrix [rows, columns].
template <class T>
View2<T> matrix(const View1<T>& memory, std::int64_t rows, std::int64_t columns) {
  return View2<T>(memory.data(), static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

/// All elements of a contiguous matrix as a vector.
template <class T>
View1<T> flat(View2<T> x) {
  return View1<T>(x.data(), x.extent(0) * x.extent(1));
}

/// The first `columns` columns of `x`. The distance between rows remains stride(0).
template <class T>
View2<T> first_columns(View2<T> x, std::int64_t columns) {
  return Kokkos::subview(x, Kokkos::ALL,
                         std::make_pair(std::size_t{0}, static_cast<std::size_t>(columns)));
}

/// The columns of `x` from `first` on. The distance between rows remains stride(0).
template <class T>
View2<T> columns_from(View2<T> x, std::int64_t first) {
  return Kokkos::subview(x, Kokkos::ALL,
                         std::make_pair(static_cast<std::size_t>(first), x.extent(1)));
}

template <class T>
TRIREME_FUNCTION std::int64_t extent(const T& view, int axis) {
  return static_cast<std::int64_t>(view.extent(static_cast<std::size_t>(axis)));
}

}  // namespace trireme
