// The communicator's verbs on views. Without a transport, a verb stages device memory through a
// host buffer and posts nonblocking MPI messages. With a transport, the verb is queued on the
// transport.
#include <trireme/base/check.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/grid/message_block.hpp>
#include <trireme/tensor/fence.hpp>

#include <mpi.h>

#include <algorithm>
#include <numeric>
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

template <class View>
std::size_t bytes_of(const View& view) {
  return view.extent(0) * sizeof(typename View::value_type);
}

template <class T>
void copy(const Exec& exec, View1<T> to, View1<const T> from) {
  if (to.data() != from.data() && to.extent(0) > 0) Kokkos::deep_copy(exec, to, from);
}

}  // namespace

Traffic Communicator::traffic() const {
  Traffic sum;
  for (const Traffic& t : traffic_) {
    sum.operations += t.operations;
    sum.bytes += t.bytes;
  }
  return sum;
}

void Communicator::count(Verb verb, std::size_t bytes) {
  Traffic& t = traffic_[static_cast<std::size_t>(verb)];
  ++t.operations;
  t.bytes += static_cast<std::int64_t>(bytes);
}

Request Communicator::request(Operation& operation) {
  Request request;
  request.operation_ = &operation;
  return request;
}

/// The host address of `data` for MPI. Waits for the kernels that wrote `data`, and copies `data`
/// to a host buffer if views are staged.
std::byte* Communicator::bring_to_host(Operation& operation, const Exec& exec,
                                       const std::byte* data, std::size_t bytes) {
  std::byte* on_host = raw(data);
  if (staged_) {
    operation.staged = take_buffer(bytes);
    on_host = operation.staged.data();
    Kokkos::deep_copy(exec, bytes_at<StagingMemory>(on_host, bytes), bytes_at<Memory>(data, bytes));
  }
  if (staged_ || !in_calling_thread) fence(exec, "grid/ reads what kernels wrote");
  return on_host;
}

void Communicator::copy_back(Operation& operation, const Exec& exec, const std::byte* from,
                             std::byte* to, std::size_t bytes) const {
  if (staged_) operation.copy_back = {exec, from, to, bytes};
}

void Communicator::finish(Operation& operation) {
  if (const auto& result = operation.copy_back; result && result->bytes > 0) {
    Kokkos::deep_copy(result->exec, bytes_at<Memory>(result->to, result->bytes),
                      bytes_at<StagingMemory>(result->from, result->bytes));
    fence(result->exec, "grid/wait copies a result to the device");
  }
  remove_pending(operation);
  give_back(operation);
}

template <class T>
Witness::Message Communicator::to_show(const char* verb, View1<T> data) const {
  return {verb, name_, raw(data.data()), extent(data, 0), sizeof(T)};
}

template <class T>
void Communicator::gives(const char* verb, View1<T> data) const {
  if (witness_ != nullptr) witness_->gives(to_show(verb, data));
}

template <class T>
Request Communicator::receives(Request request, const char* verb, View1<T> data) const {
  if (witness_ != nullptr) request.result_ = to_show(verb, data);
  return request;
}

void Communicator::show_result(Request& request) const {
  const Witness::Message result = std::exchange(request.result_, {});
  if (witness_ != nullptr && result.elements > 0) witness_->receives(result);
}

void Communicator::wait(Request& request, const char* what) {
  if (!request.active()) return;
  if (request.queued_ != nullptr) {
    wait(*std::exchange(request.queued_, nullptr), what);
  } else {
    wait(*request.operation_, what);
    finish(*std::exchange(request.operation_, nullptr));
  }
  show_result(request);
}

bool Communicator::done(Request& request) {
  if (!request.active()) return true;
  advance_pending();
  if (request.queued_ != nullptr) {
    if (!transport_->passed(*request.queued_)) return false;
    wait(*std::exchange(request.queued_, nullptr), "what has come");
  } else {
    if (!advance(*request.operation_)) return false;
    finish(*std::exchange(request.operation_, nullptr));
  }
  show_result(request);
  return true;
}

/// Checks the caller's counts and computes offsets_, the offsets of the parts.
void Communicator::set_offsets(const char* verb, std::span<const std::int64_t> counts,
                               std::size_t all, std::size_t mine) {
  check(std::ssize(counts) == size_, verb, " on ", name_, ": ", counts.size(), " counts for ",
        size_, " ranks");
  offsets_.assign(1, 0);
  for (const std::int64_t n : counts) offsets_.push_back(offsets_.back() + n);
  const auto total = static_cast<std::size_t>(offsets_.back());
  const auto part = static_cast<std::size_t>(counts[static_cast<std::size_t>(rank_)]);
  check(total == all && part == mine, verb, " on ", name_, ": rank ", rank_, " has ", mine, " of ",
        all, " elements, but the counts give ", part, " of ", total);
}

template <class T>
Request Communicator::start_all_reduce(const Exec& exec, View1<T> data, Reduction reduction) {
  if (size_ == 1 || data.extent(0) == 0 || left_out_) return {};
  const std::size_t bytes = bytes_of(data);
  count(Verb::all_reduce, bytes);
  gives("all_reduce", data);
  if (transport_) {
    Queued& queued = transport_->take("all_reduce", collectives_++, -1);
    transport_->all_reduce<T>(exec, queued, data.data(), extent(data, 0), reduction);
    return receives(request(queued), "all_reduce", data);
  }
  Operation& operation = take_collective("all_reduce");
  std::byte* on_host = bring_to_host(operation, exec, raw(data.data()), bytes);
  copy_back(operation, exec, on_host, raw(data.data()), bytes);
  post_all_reduce(operation, reinterpret_cast<T*>(on_host), extent(data, 0), reduction);
  return receives(request(operation), "all_reduce", data);
}

template <class T>
void Communicator::all_reduce(const Exec& exec, View1<T> data, Reduction reduction,
                              const char* what) {
  Request request = start_all_reduce(exec, data, reduction);
  wait(request, what);
}

template <class T>
Request Communicator::start_all_gather(const Exec& exec, View1<T> all,
                                       std::type_identity_t<View1<const T>> mine,
                                       std::span<const std::int64_t> counts) {
  if (left_out_) return {};
  if (size_ > 1) count(Verb::all_gather, bytes_of(all));
  set_offsets("all_gather", counts, all.extent(0), mine.extent(0));
  const auto first = offsets_[static_cast<std::size_t>(rank_)];
  copy<T>(exec, View1<T>(all.data() + first, mine.extent(0)), mine);
  if (size_ == 1 || all.extent(0) == 0) return {};
  gives("all_gather", mine);
  if (transport_) {
    Queued& queued = transport_->take("all_gather", collectives_++, -1);
    transport_->all_gather(exec, queued, raw(all.data()), offsets_, sizeof(T));
    return receives(request(queued), "all_gather", all);
  }
  Operation& operation = take_collective("all_gather");
  operation.offsets = offsets_;
  // Only this rank's part is staged, but the buffer holds all parts.
  std::byte* on_host = raw(all.data());
  if (staged_) {
    operation.staged = take_buffer(bytes_of(all));
    on_host = operation.staged.data();
    if (mine.extent(0) > 0)
      Kokkos::deep_copy(exec,
                        bytes_at<StagingMemory>(
                            on_host + first * static_cast<std::int64_t>(sizeof(T)), bytes_of(mine)),
                        bytes_at<Memory>(raw(mine.data()), bytes_of(mine)));
  }
  if (staged_ || !in_calling_thread) fence(exec, "grid/all_gather reads what kernels wrote");
  copy_back(operation, exec, on_host, raw(all.data()), bytes_of(all));
  post_all_gather<T>(operation, on_host);
  return receives(request(operation), "all_gather", all);
}

template <class T>
void Communicator::all_gather(const Exec& exec, View1<T> all,
                              std::type_identity_t<View1<const T>> mine,
                              std::span<const std::int64_t> counts, const char* what) {
  Request request = start_all_gather<T>(exec, all, mine, counts);
  wait(request, what);
}

template <class T>
Request Communicator::start_reduce_scatter(const Exec& exec, View1<T> mine,
                                           std::type_identity_t<View1<const T>> all,
                                           std::span<const std::int64_t> counts) {
  if (left_out_) return {};
  if (size_ > 1) count(Verb::reduce_scatter, bytes_of(all));
  set_offsets("reduce_scatter", counts, all.extent(0), mine.extent(0));
  if (size_ == 1 || all.extent(0) == 0) {
    copy<T>(exec, mine, all);
    return {};
  }
  gives("reduce_scatter", all);
  if (transport_) {
    Queued& queued = transport_->take("reduce_scatter", collectives_++, -1);
    transport_->reduce_scatter<T>(exec, queued, mine.data(), all.data(), offsets_);
    return receives(request(queued), "reduce_scatter", mine);
  }
  Operation& operation = take_collective("reduce_scatter");
  operation.offsets = offsets_;
  operation.scratch = take_buffer(
      static_cast<std::size_t>(reduce_scatter_scratch_bytes(extent(mine, 0), sizeof(T), size_)));
  operation.whole = bring_to_host(operation, exec, raw(all.data()), bytes_of(all));
  operation.result = raw(mine.data());
  if (staged_) {
    operation.result =
        operation.staged.data() +
        operation.offsets[static_cast<std::size_t>(rank_)] * static_cast<std::int64_t>(sizeof(T));
    copy_back(operation, exec, operation.result, raw(mine.data()), bytes_of(mine));
  }
  post_reduce_scatter<T>(operation);
  add_pending(operation);
  return receives(request(operation), "reduce_scatter", mine);
}

template <class T>
void Communicator::reduce_scatter(const Exec& exec, View1<T> mine,
                                  std::type_identity_t<View1<const T>> all,
                                  std::span<const std::int64_t> counts, const char* what) {
  Request request = start_reduce_scatter<T>(exec, mine, all, counts);
  wait(request, what);
}

template <class T>
Request Communicator::start_send(const Exec& exec, View1<const T> data, int to, int channel) {
  if (left_out_) return {};
  check(to >= 0 && to < size_ && channel >= 0 && channel < channels_, "send on ", name_,
        " to rank ", to, " of ", size_, ", channel ", channel, " of ", channels_);
  count(Verb::send, bytes_of(data));
  gives("send", data);
  if (transport_)
    return request(queue_transfer(exec, "send", raw(data.data()), bytes_of(data), to, channel));
  Operation& operation = take("send", channel);
  operation.peer = world_rank(to);
  const std::byte* on_host = bring_to_host(operation, exec, raw(data.data()), bytes_of(data));
  const MessageBlock block(extent(data, 0), datatype<T>());
  expect_mpi(MPI_Isend(on_host, block.count(), block.type(), to, channel, communicator_,
                       &operation.messages.emplace_back(MPI_REQUEST_NULL)),
             operation.verb, name_);
  return request(operation);
}

template <class T>
Request Communicator::start_receive(const Exec& exec, View1<T> data, int from, int channel) {
  if (left_out_) return {};
  check(from >= 0 && from < size_ && channel >= 0 && channel < channels_, "receive on ", name_,
        " from rank ", from, " of ", size_, ", channel ", channel, " of ", channels_);
  if (transport_)
    return receives(
        request(queue_transfer(exec, "receive", raw(data.data()), bytes_of(data), from, channel)),
        "receive", data);
  Operation& operation = take("receive", channel);
  operation.peer = world_rank(from);
  std::byte* on_host = raw(data.data());
  if (staged_) {
    operation.staged = take_buffer(bytes_of(data));
    on_host = operation.staged.data();
    copy_back(operation, exec, on_host, raw(data.data()), bytes_of(data));
  } else if (!in_calling_thread) {
    fence(exec, "grid/receive writes where kernels read");
  }
  const MessageBlock block(extent(data, 0), datatype<T>());
  expect_mpi(MPI_Irecv(on_host, block.count(), block.type(), from, channel, communicator_,
                       &operation.messages.emplace_back(MPI_REQUEST_NULL)),
             operation.verb, name_);
  return receives(request(operation), "receive", data);
}

template <class T>
void Communicator::broadcast(const Exec& exec, View1<T> data, int root, const char* what) {
  if (size_ == 1 || data.extent(0) == 0 || left_out_) return;
  const std::size_t bytes = bytes_of(data);
  count(Verb::broadcast, bytes);
  if (transport_) {
    Queued& queued = transport_->take("broadcast", collectives_++, -1);
    transport_->broadcast(exec, queued, raw(data.data()), static_cast<Bytes>(bytes), root);
    return wait(queued, what);
  }
  Operation& operation = take_collective("broadcast");
  std::byte* on_host = bring_to_host(operation, exec, raw(data.data()), bytes);
  if (rank_ != root) copy_back(operation, exec, on_host, raw(data.data()), bytes);
  // Broadcasts pieces of at most 1 GiB: MPICH 4.0 can send a datatype of 4 GiB, but cannot
  // broadcast it.
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t n = extent(data, 0);
  const std::int64_t most = std::min<std::int64_t>(counted_elements(), (1 << 30) / size);
  for (std::int64_t first = 0; first < n; first += most)
    expect_mpi(MPI_Ibcast(on_host + first * size, static_cast<int>(std::min(most, n - first)),
                          datatype<T>(), root, communicator_,
                          &operation.messages.emplace_back(MPI_REQUEST_NULL)),
               operation.verb, name_);
  wait(operation, what);
  finish(operation);
}

#define TRIREME_INSTANTIATE_ALL_REDUCE(T)                                               \
  template Request Communicator::start_all_reduce<T>(const Exec&, View1<T>, Reduction); \
  template void Communicator::all_reduce<T>(const Exec&, View1<T>, Reduction, const char*);
TRIREME_INSTANTIATE_ALL_REDUCE(float)
TRIREME_INSTANTIATE_ALL_REDUCE(double)
TRIREME_INSTANTIATE_ALL_REDUCE(Bf16)
TRIREME_INSTANTIATE_ALL_REDUCE(Fp16)
TRIREME_INSTANTIATE_ALL_REDUCE(std::int64_t)
#undef TRIREME_INSTANTIATE_ALL_REDUCE

#define TRIREME_INSTANTIATE(T)                                                                  \
  template Request Communicator::start_all_gather<T>(const Exec&, View1<T>, View1<const T>,     \
                                                     std::span<const std::int64_t>);            \
  template void Communicator::all_gather<T>(const Exec&, View1<T>, View1<const T>,              \
                                            std::span<const std::int64_t>, const char*);        \
  template Request Communicator::start_reduce_scatter<T>(const Exec&, View1<T>, View1<const T>, \
                                                         std::span<const std::int64_t>);        \
  template void Communicator::reduce_scatter<T>(const Exec&, View1<T>, View1<const T>,          \
                                                std::span<const std::int64_t>, const char*);    \
  template Request Communicator::start_send<T>(const Exec&, View1<const T>, int, int);          \
  template Request Communicator::start_receive<T>(const Exec&, View1<T>, int, int);             \
  template void Communicator::broadcast<T>(const Exec&, View1<T>, int, const char*);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::grid
