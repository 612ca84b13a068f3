#pragma once

#include <trireme/tensor/fence.hpp>
#include <trireme/tensor/views.hpp>

#include <cstddef>
#include <span>

namespace trireme {

/// Starts a copy of host memory, which must stay valid until the next wait for `exec`.
template <class T>
void copy_to_device(const Exec& exec, View1<T> to, std::span<const T> from) {
  using HostSource = Kokkos::View<const T*, Kokkos::LayoutRight, Kokkos::HostSpace, Unmanaged>;
  Kokkos::deep_copy(exec, to, HostSource(from.data(), from.size()));
}

/// Waits for `exec`, copies `from` into plain host memory, and returns when the copy is complete.
/// The wait comes first, because a device's runtime blocks the host during a copy to memory that is
/// not page-locked.
template <class T>
void copy_to_host(const Exec& exec, std::span<T> to, View1<T> from, const char* reason) {
  fence(exec, reason);
  Kokkos::deep_copy(exec, HostView1<T>(to.data(), to.size()), from);
  finish_copy(exec);
}

}  // namespace trireme
