#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/views.hpp>

#include <cstddef>
#include <memory>

namespace trireme {

class CopyQueue;

/// A point in the work of a device, behind which other work can be put. One that was never recorded
/// is behind nothing.
class Mark {
 public:
  Mark();
  Mark(Mark&&) noexcept;
  Mark& operator=(Mark&&) noexcept;
  ~Mark();

  /// The end of what is on `exec`, or in `queue`, by now.
  void record(const Exec& exec);
  void record(const CopyQueue& queue);

  /// Whether what it is behind has been done. Does not wait, unless the queue runs only when
  /// something waits for it.
  bool done() const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// What is put on `exec` from here on begins behind `mark`. The host does not wait.
void wait(const Exec& exec, const Mark& mark);

/// Copies between a device's memory and the host's (StagingMemory) that run in their own order,
/// beside the kernels: a stream of CUDA or HIP. Elsewhere they run when something waits for them,
/// which is as late as a stream may run them.
class CopyQueue {
 public:
  CopyQueue();
  CopyQueue(CopyQueue&&) noexcept;
  CopyQueue& operator=(CopyQueue&&) noexcept;
  ~CopyQueue();

  /// What is queued from here on begins behind `mark`.
  void wait(const Mark& mark) const;
  /// Both memories must stay until a mark behind the copy was waited for.
  void to_host(std::byte* staging, const std::byte* device, Bytes bytes) const;
  void to_device(std::byte* device, const std::byte* staging, Bytes bytes) const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace trireme
