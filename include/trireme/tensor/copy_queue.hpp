#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/views.hpp>

#include <cstddef>
#include <memory>

namespace trireme {

class CopyQueue;

/// A point in a device's work after which other work can begin, such as an event of CUDA or HIP. An
/// event that was never recorded is complete.
class Event {
 public:
  Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  ~Event();

  /// Records the end of the work queued so far on `exec`, or in `queue`.
  void record(const Exec& exec);
  void record(const CopyQueue& queue);

  /// Whether the work before the event is complete. Does not wait, unless the queue runs only when
  /// something waits for it.
  bool done() const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// Work submitted to `exec` from now on begins after `event`. The host does not wait.
void wait(const Exec& exec, const Event& event);

/// Copies between device memory and host memory (StagingMemory) that run in order, concurrently
/// with kernels: a stream of CUDA or HIP. Elsewhere they run when something waits for them, which
/// is as late as a stream may run them.
class CopyQueue {
 public:
  CopyQueue();
  CopyQueue(CopyQueue&&) noexcept;
  CopyQueue& operator=(CopyQueue&&) noexcept;
  ~CopyQueue();

  /// Copies queued from now on begin after `event`.
  void wait(const Event& event) const;
  /// Both memories must stay valid until an event recorded after the copy has been waited for.
  void to_host(std::byte* staging, const std::byte* device, Bytes bytes) const;
  void to_device(std::byte* device, const std::byte* staging, Bytes bytes) const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace trireme
