#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/views.hpp>

#include <cstddef>
#include <memory>

namespace trireme {

class CopyQueue;

/// A point in the work of a device or of a CopyQueue after which other work can begin, such as an
/// event of CUDA or HIP. An event that was never recorded is complete.
class Event {
 public:
  Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  ~Event();

  /// Records the end of the work queued so far on `exec`, or in `queue`. Without CUDA and HIP,
  /// record(exec) waits for this work.
  void record(const Exec& exec);
  void record(const CopyQueue& queue);

  /// Whether the work before the event is complete. Does not wait on CUDA and HIP devices;
  /// elsewhere, done() runs the queued copies before the event.
  bool done() const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// Work submitted to `exec` from now on begins after `event`. On CUDA and HIP devices, the host
/// does not wait; elsewhere, it runs the queued copies before the event.
void wait(const Exec& exec, const Event& event);

/// Copies between device memory and host memory (StagingMemory) that run in order. On CUDA and HIP
/// devices, the queue is a stream, and copies run concurrently with kernels. Elsewhere, a copy runs
/// when something waits for it.
class CopyQueue {
 public:
  CopyQueue();
  CopyQueue(CopyQueue&&) noexcept;
  CopyQueue& operator=(CopyQueue&&) noexcept;
  ~CopyQueue();

  /// Copies queued from now on begin after `event`.
  void wait(const Event& event) const;
  /// to_host() and to_device() queue a copy. Both memories must stay valid until an event recorded
  /// after the copy has been waited for.
  void to_host(std::byte* staging, const std::byte* device, Bytes bytes) const;
  void to_device(std::byte* device, const std::byte* staging, Bytes bytes) const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace trireme
