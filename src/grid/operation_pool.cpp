// Operations and host buffers of a communicator, and copies between device memory and the buffers.
#include <trireme/grid/operation_pool.hpp>

#include <trireme/tensor/fence.hpp>

#include <utility>

namespace trireme::grid {
namespace {

/// Whether a kernel launch returns only after the kernel has ended.
template <class Space>
constexpr bool returns_when_done = false;
#if defined(KOKKOS_ENABLE_SERIAL)
template <>
[[maybe_unused]] constexpr bool returns_when_done<Kokkos::Serial> = true;
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
template <>
[[maybe_unused]] constexpr bool returns_when_done<Kokkos::OpenMP> = true;
#endif
constexpr bool in_calling_thread = returns_when_done<Exec>;

template <class Space, class Byte>
auto bytes_at(Byte* data, std::size_t bytes) {
  return Kokkos::View<Byte*, Space, Unmanaged>(data, bytes);
}

}  // namespace

OperationPool::~OperationPool() {
  for (const auto& operation : operations_) remove_pending(*operation);
}

Operation& OperationPool::take() {
  if (idle_operations_.empty())
    idle_operations_.push_back(operations_.emplace_back(std::make_unique<Operation>()).get());
  Operation& operation = *idle_operations_.back();
  idle_operations_.pop_back();
  operation.peer = -1;
  operation.then = nullptr;
  operation.messages.clear();
  return operation;
}

void OperationPool::give_back(Operation& operation) {
  give_back(operation.scratch);
  give_back(operation.staged);
  operation.copy_back.reset();
  idle_operations_.push_back(&operation);
}

StagingBuffer OperationPool::take_buffer(std::size_t bytes) {
  // Best fit, so that a small message does not occupy a large message's buffer.
  auto best = idle_buffers_.end();
  for (auto b = idle_buffers_.begin(); b != idle_buffers_.end(); ++b)
    if (b->extent(0) >= bytes && (best == idle_buffers_.end() || b->extent(0) < best->extent(0)))
      best = b;
  if (best == idle_buffers_.end())
    return StagingBuffer(Kokkos::view_alloc(Kokkos::WithoutInitializing, "grid/staging"), bytes);
  const StagingBuffer buffer = *best;
  idle_buffers_.erase(best);
  return buffer;
}

std::byte* OperationPool::host_memory(Operation& operation, std::byte* data, std::size_t bytes) {
  if (!stages_) return data;
  operation.staged = take_buffer(bytes);
  return operation.staged.data();
}

std::byte* OperationPool::bring_to_host(Operation& operation, const Exec& exec,
                                        const std::byte* data, std::size_t bytes) {
  std::byte* on_host = host_memory(operation, raw(data), bytes);
  copy_to_host(exec, on_host, data, bytes);
  wait_for_kernels(exec, "grid/ reads what kernels wrote");
  return on_host;
}

void OperationPool::copy_to_host(const Exec& exec, std::byte* to, const std::byte* from,
                                 std::size_t bytes) const {
  if (stages_ && bytes > 0)
    Kokkos::deep_copy(exec, bytes_at<StagingMemory>(to, bytes), bytes_at<Memory>(from, bytes));
}

void OperationPool::copy_back(Operation& operation, const Exec& exec, const std::byte* from,
                              std::byte* to, std::size_t bytes) const {
  if (stages_) operation.copy_back = {exec, from, to, bytes};
}

void OperationPool::wait_for_kernels(const Exec& exec, const char* reason) const {
  if (stages_ || !in_calling_thread) fence(exec, reason);
}

void OperationPool::finish(Operation& operation) {
  if (const auto& result = operation.copy_back; result && result->bytes > 0) {
    Kokkos::deep_copy(result->exec, bytes_at<Memory>(result->to, result->bytes),
                      bytes_at<StagingMemory>(result->from, result->bytes));
    fence(result->exec, "grid/wait copies a result to the device");
  }
  remove_pending(operation);
  give_back(operation);
}

void OperationPool::give_back(StagingBuffer& buffer) {
  if (buffer.extent(0) > 0) idle_buffers_.push_back(std::exchange(buffer, StagingBuffer()));
}

}  // namespace trireme::grid
