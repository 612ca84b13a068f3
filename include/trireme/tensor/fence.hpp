#pragma once

#include <trireme/tensor/copy_queue.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <functional>

namespace trireme {

/// Waits for all work queued on `exec`. Counted by fence_count(). `reason`: name of the wait.
void fence(const Exec& exec, const char* reason);

/// Waits until the work before `event` is complete. Not counted if the work is already complete.
void fence(const Event& event, const char* reason);

/// Waits until `done` returns true, for work whose end only `done` can test. Counted.
void wait_until(const std::function<bool()>& done, const char* reason);

/// Waits for a copy that was queued on an idle `exec`. Not counted.
void finish_copy(const Exec& exec);

/// Number of counted waits so far in this process.
std::int64_t fence_count();

/// Function that replaces blocking waits in the device's runtime: it advances other work until
/// `done` returns true. An empty function restores the blocking waits. One per process.
using Waiter = std::function<void(const std::function<bool()>& done, const char* reason)>;
void set_waiter(Waiter waiter);

}  // namespace trireme
