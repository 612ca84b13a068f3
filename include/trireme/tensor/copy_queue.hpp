#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/views.hpp>

#include <cstddef>
#include <memory>

namespace trireme {

class CopyQueue;

/// A point in the work of a device, such as an event of CUDA or HIP: other work can begin after it.
/// An event that was never recorded is already complete.
class Event {
 public:
  Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  ~Event();

  /// The end of what is on `exec`, or in `queue`, by now.
  void record(const Exec& exec);
  void record(const CopyQueue& queue);

  /// Whether the work before it is complete. Does not wait, unless the queue runs only when
  /// something waits for it.
  bool done() const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// Work put on `exec` from here on begins after `event`. The host does not wait.
void wait(const Exec& exec, const Event& event);

/// Copies between a device's memory and the host's (StagingMemory) that run in their own order,
/// beside the kernels: a stream of CUDA or HIP. Elsewhere they run when something waits for them,
/// which is as late as a stream may run them.
class CopyQueue {
 public:
  CopyQueue();
  CopyQueue(CopyQueue&&) noexcept;
  CopyQueue& operator=(CopyQueue&&) noexcept;
  ~CopyQueue();

  /// Copies queued from here on begin after `event`.
  void wait(const Event& event) const;
  /// Both memories must stay until an event recorded after the copy was waited for.
  void to_host(std::byte* staging, const std::byte* device, Bytes bytes) const;
  void to_device(std::byte* device, const std::byte* staging, Bytes bytes) const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace trireme
