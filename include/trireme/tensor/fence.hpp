#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

namespace trireme {

/// Waits until everything queued on `exec` is done. The only way in which Trireme waits for a
/// device: counted, and named by what it waits for (Kokkos 3.4's fence takes no label, and its
/// Serial back end fires no callback).
void fence(const Exec& exec, const char* reason);

/// Waits so far in this process.
std::int64_t fence_count();

}  // namespace trireme
