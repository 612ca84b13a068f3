#pragma once

#include <trireme/grid/operation.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace trireme::grid {

/// Operations of one communicator, and the host buffers through which views are staged. Both are
/// reused.
class OperationPool {
 public:
  OperationPool() = default;
  ~OperationPool();
  OperationPool(const OperationPool&) = delete;
  OperationPool& operator=(const OperationPool&) = delete;

  /// An operation without messages, valid until it is given back.
  Operation& take();
  /// Takes back an operation and its buffers.
  void give_back(Operation& operation);
  /// Copies a staged result to the device, and takes back the operation.
  void finish(Operation& operation);
  /// A buffer of at least `bytes` bytes. Store it in the operation, which gives it back.
  StagingBuffer take_buffer(std::size_t bytes);
  /// Stages views through host buffers from now on, as builds for devices always do.
  void stage_through_host() { stages_ = true; }
  bool stages() const { return stages_; }
  /// Host memory for the `bytes` bytes at `data`: `data`, or a buffer if views are staged.
  std::byte* host_memory(Operation& operation, std::byte* data, std::size_t bytes);
  /// The host address of `data` for MPI. Waits for the kernels that wrote `data`, and copies `data`
  /// to a host buffer if views are staged.
  std::byte* bring_to_host(Operation& operation, const Exec& exec, const std::byte* data,
                           std::size_t bytes);
  /// If views are staged, copy_to_host() starts a copy of an input to a buffer, and copy_back()
  /// requests a copy of a result from a buffer. Otherwise no effect.
  void copy_to_host(const Exec& exec, std::byte* to, const std::byte* from,
                    std::size_t bytes) const;
  void copy_back(Operation& operation, const Exec& exec, const std::byte* from, std::byte* to,
                 std::size_t bytes) const;
  /// Waits for `exec`, unless kernels end before their launch returns and nothing is copied.
  void wait_for_kernels(const Exec& exec, const char* reason) const;

  /// Number of operations that have not been given back.
  std::size_t in_flight() const { return operations_.size() - idle_operations_.size(); }

 private:
  void give_back(StagingBuffer& buffer);

  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> idle_operations_;
  std::vector<StagingBuffer> idle_buffers_;
  bool stages_ = !exec_on_host;
};

}  // namespace trireme::grid
