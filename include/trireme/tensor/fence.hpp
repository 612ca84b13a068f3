#pragma once

#include <trireme/tensor/copy_queue.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <functional>

namespace trireme {

/// Waits until everything queued on `exec` is done. With the next one the only way in which Trireme
/// waits for a device: counted, and named by what it waits for (Kokkos 3.4's fence takes no label,
/// and its Serial back end fires no callback).
void fence(const Exec& exec, const char* reason);

/// Waits until the work before `event` is complete. Not counted where it already is.
void fence(const Event& event, const char* reason);

/// Waits until `done` gives true, as the others do, for what only it can tell. Counted.
void wait_until(const std::function<bool()>& done, const char* reason);

/// Waits so far in this process.
std::int64_t fence_count();

/// Called instead of blocking in the device's run time: returns when `done` gives true, and looks
/// after what else must go on meanwhile. Empty: none. Of the process.
using Waiter = std::function<void(const std::function<bool()>& done, const char* reason)>;
void set_waiter(Waiter waiter);

}  // namespace trireme
