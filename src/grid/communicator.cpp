// Communicators of MPI: construction, waiting, and verbs on host memory and on views. Messages are
// nonblocking, and waits poll, so that a wait can advance other verbs.
#include <trireme/grid/communicator.hpp>

#include <trireme/base/check.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/grid/message_block.hpp>
#include <trireme/grid/pause.hpp>
#include <trireme/grid/watchdog.hpp>
#include <trireme/tensor/fence.hpp>

#include <mpi.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace trireme::grid {
namespace {

/// The highest tag. MPI guarantees 32767; implementations may allow more.
int highest_tag() {
  void* value = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  return found != 0 ? *static_cast<int*>(value) : 32767;
}

std::vector<int> world_ranks_of(MPI_Comm communicator, int size) {
  std::vector<int> mine(static_cast<std::size_t>(size));
  std::vector<int> world(mine.size());
  std::iota(mine.begin(), mine.end(), 0);
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Comm_group(communicator, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_translate_ranks(group, size, mine.data(), all, world.data());
  MPI_Group_free(&group);
  MPI_Group_free(&all);
  return world;
}

MPI_Request& message(Operation& operation) {
  return operation.messages.emplace_back(MPI_REQUEST_NULL);
}

template <class View>
std::size_t bytes_of(const View& view) {
  return view.extent(0) * sizeof(typename View::value_type);
}

template <class T>
void copy(const Exec& exec, View1<T> to, View1<const T> from) {
  if (to.data() != from.data() && to.extent(0) > 0) Kokkos::deep_copy(exec, to, from);
}

/// The first unfinished verb of this process on a transport, in call order.
struct FirstUnfinished {
  std::int64_t turn = 0;  ///< Queued::turn; 0: no verb, the host waits for this rank's kernels
  Wait wait;
};

FirstUnfinished first_unfinished(const char* reason) {
  FirstUnfinished first{0, {"kernels", reason, "", 0, -1}};
  for (TransportQueue* queue : transport_queues()) {
    const Queued* oldest = queue->oldest();
    if (oldest == nullptr || (first.turn > 0 && oldest->turn > first.turn)) continue;
    first = {oldest->turn, {oldest->verb, reason, queue->name(), oldest->number, oldest->peer}};
  }
  return first;
}

/// Waits for work of a device until `done` returns true: the waiter of processes with a transport
/// (set_waiter). The wait may cover a whole step. Each verb that ends meanwhile is progress, so the
/// rank publishes the verb that it has reached.
void wait_for_queues(const std::function<bool()>& done, const char* reason) {
  std::optional<Heartbeat::Waiting> waiting;
  std::int64_t said = -1;
  Pause pause;
  while (!done()) {
    const FirstUnfinished at = first_unfinished(reason);
    if (at.turn != std::exchange(said, at.turn)) waiting.emplace(at.wait);
    advance_pending();
    Watchdog::glance();
    pause();
  }
}

}  // namespace

Communicator::Communicator(MPI_Comm communicator, std::string name)
    : communicator_(communicator), name_(std::move(name)) {
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  expect_mpi(MPI_Comm_rank(communicator_, &rank_), "rank", name_);
  expect_mpi(MPI_Comm_size(communicator_, &size_), "size", name_);
  world_ranks_ = world_ranks_of(communicator_, size_);
  const int highest = highest_tag();
  channels_ = highest / 2 + 1;
  tag_pairs_ = (highest - channels_ + 1) / 2;
}

Communicator::~Communicator() {
  if (communicator_ != MPI_COMM_WORLD) MPI_Comm_free(&communicator_);
}

std::unique_ptr<Communicator> Communicator::split(int colour, int position, std::string name) {
  // MPI_Comm_split blocks without yielding the core, so the ranks meet here first.
  barrier("a communicator of its parts");
  MPI_Comm part = MPI_COMM_NULL;
  expect_mpi(MPI_Comm_split(communicator_, colour, position, &part), "split", name_);
  return std::make_unique<Communicator>(part, std::move(name));
}

std::unique_ptr<Communicator> Communicator::alone(std::string name) {
  MPI_Comm copy = MPI_COMM_NULL;  // a separate communicator, so that its channels are private
  expect_mpi(MPI_Comm_dup(MPI_COMM_SELF, &copy), "copy", name);
  return std::make_unique<Communicator>(copy, std::move(name));
}

Operation& Communicator::take(const char* verb, std::int64_t number) {
  Operation& operation = pool_.take();
  operation.communicator = name_;
  operation.mpi = communicator_;
  operation.rank = rank_;
  operation.ranks = size_;
  operation.verb = verb;
  operation.number = number;
  return operation;
}

Operation& Communicator::take_collective(const char* verb) {
  Operation& operation = take(verb, collectives_++);
  operation.tag = channels_ + static_cast<int>(operation.number % tag_pairs_) * 2;
  return operation;
}

void Communicator::wait(Operation& operation, const char* what) {
  if (advance(operation)) return;
  const Heartbeat::Waiting waiting({operation.verb, what, name_, operation.number, operation.peer});
  Pause pause;
  while (!advance(operation)) {
    advance_pending();
    Watchdog::glance();
    pause();
  }
}

std::size_t Communicator::wait_for_one(std::span<Request> requests, const char* what) {
  const auto complete = [&] {
    return std::ranges::find_if(
        requests, [&](Request& request) { return request.active() && done(request); });
  };
  const auto active = std::ranges::find_if(requests, &Request::active);
  check(active != requests.end(), name_, ": nothing is outstanding to wait for ", what);
  auto found = complete();
  if (found != requests.end()) return static_cast<std::size_t>(found - requests.begin());
  const Operation* first = active->operation_;
  const Heartbeat::Waiting waiting({first != nullptr ? first->verb : "transfer", what, name_,
                                    first != nullptr ? first->number : 0, -1});
  Pause pause;
  while ((found = complete()) == requests.end()) {
    Watchdog::glance();
    pause();
  }
  return static_cast<std::size_t>(found - requests.begin());
}

void Communicator::progress() {
  int flag = 0;
  expect_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &flag, MPI_STATUS_IGNORE),
             "progress", name_);
  advance_pending();
}

template <class T>
void Communicator::post_all_reduce(Operation& operation, T* data, std::int64_t n,
                                   Reduction reduction) {
  if constexpr (std::is_floating_point_v<T> || is_narrow<T>) {
    if (reduction == Reduction::sum) {
      const auto bytes = ordered_sum_scratch_bytes(n, sizeof(T), size_);
      operation.scratch = pool_.take_buffer(static_cast<std::size_t>(bytes));
      post_ordered_sum(operation, data, n);
      add_pending(operation);
      return;
    }
  }
  check(!is_narrow<T>, operation.verb, ": bf16 and fp16 support sum, not min or max");
  // These reductions are exact, so their order does not matter.
  const MPI_Op op = reduction == Reduction::sum       ? MPI_SUM
                    : reduction == Reduction::maximum ? MPI_MAX
                                                      : MPI_MIN;
  expect_mpi(MPI_Iallreduce(MPI_IN_PLACE, data, message_count(n), datatype<T>(), op, communicator_,
                            &message(operation)),
             operation.verb, name_);
}

template <class T>
void Communicator::all_reduce(std::span<T> data, Reduction reduction, const char* what) {
  if (size_ == 1 || data.empty()) return;
  Operation& operation = take_collective("all_reduce");
  post_all_reduce(operation, data.data(), static_cast<std::int64_t>(data.size()), reduction);
  wait(operation, what);
  remove_pending(operation);
  pool_.give_back(operation);
}

void Communicator::broadcast(std::span<std::byte> data, int root, const char* what) {
  if (size_ == 1) return;
  Operation& operation = take_collective("broadcast");
  expect_mpi(MPI_Ibcast(data.data(), message_count(std::ssize(data)), MPI_BYTE, root, communicator_,
                        &message(operation)),
             what, name_);
  wait(operation, what);
  pool_.give_back(operation);
}

std::string Communicator::broadcast(const std::string& value, int root, const char* what) {
  const auto sizes = all_gather(static_cast<std::int64_t>(value.size()), what);
  std::string out = value;
  out.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(root)]));
  broadcast(std::as_writable_bytes(std::span(out)), root, what);
  return out;
}

std::vector<std::int64_t> Communicator::all_gather(std::int64_t value, const char* what) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_), value);
  if (size_ == 1) return all;
  Operation& operation = take_collective("all_gather");
  expect_mpi(MPI_Iallgather(&value, 1, MPI_INT64_T, all.data(), 1, MPI_INT64_T, communicator_,
                            &message(operation)),
             what, name_);
  wait(operation, what);
  pool_.give_back(operation);
  return all;
}

std::vector<std::string> Communicator::gather(const std::string& value, int root,
                                              const char* what) {
  if (size_ == 1) return {value};
  const auto sizes = all_gather(std::ssize(value), what);
  std::vector<int> counts;
  std::vector<int> offsets;
  std::int64_t total = 0;
  for (const std::int64_t n : sizes) {
    counts.push_back(message_count(n));
    offsets.push_back(message_count(total));
    total += n;
  }
  std::string joined(rank_ == root ? static_cast<std::size_t>(total) : 0, '\0');
  Operation& operation = take_collective("gather");
  expect_mpi(MPI_Igatherv(value.data(), message_count(std::ssize(value)), MPI_BYTE, joined.data(),
                          counts.data(), offsets.data(), MPI_BYTE, root, communicator_,
                          &message(operation)),
             what, name_);
  wait(operation, what);
  pool_.give_back(operation);
  std::vector<std::string> parts;
  for (std::size_t i = 0; rank_ == root && i < sizes.size(); ++i)
    parts.push_back(
        joined.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(counts[i])));
  return parts;
}

Request Communicator::start_send(std::span<const std::byte> data, int to, int channel) {
  Operation& operation = take("send", channel);
  operation.peer = world_rank(to);
  const MessageBlock block(std::ssize(data), MPI_BYTE);
  expect_mpi(MPI_Isend(data.data(), block.count(), block.type(), to, channel, communicator_,
                       &message(operation)),
             operation.verb, name_);
  return request(operation);
}

Request Communicator::start_receive(std::span<std::byte> data, int from, int channel) {
  Operation& operation = take("receive", channel);
  operation.peer = world_rank(from);
  const MessageBlock block(std::ssize(data), MPI_BYTE);
  expect_mpi(MPI_Irecv(data.data(), block.count(), block.type(), from, channel, communicator_,
                       &message(operation)),
             operation.verb, name_);
  return request(operation);
}

void Communicator::all_to_all(std::span<std::int64_t> received, std::span<const std::int64_t> sent,
                              const char* what) {
  check(std::ssize(received) == size_ && std::ssize(sent) == size_, what, ": ", received.size(),
        " and ", sent.size(), " numbers for ", size_, " ranks of ", name_);
  Operation& operation = take_collective("all_to_all");
  operation.offsets.resize(static_cast<std::size_t>(size_) + 1);
  std::iota(operation.offsets.begin(), operation.offsets.end(), 0);
  operation.sent_offsets = operation.offsets;
  operation.whole = raw(sent.data());
  operation.result = raw(received.data());
  post_all_to_all<std::int64_t>(operation);
  wait(operation, what);
  pool_.give_back(operation);
}

void Communicator::barrier(const char* what) {
  if (size_ == 1) return;
  Operation& operation = take_collective("barrier");
  expect_mpi(MPI_Ibarrier(communicator_, &message(operation)), what, name_);
  wait(operation, what);
  pool_.give_back(operation);
}

#define TRIREME_INSTANTIATE(T)                                                             \
  template void Communicator::post_all_reduce<T>(Operation&, T*, std::int64_t, Reduction); \
  template void Communicator::all_reduce<T>(std::span<T>, Reduction, const char*);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(std::int64_t)
#undef TRIREME_INSTANTIATE
template void Communicator::post_all_reduce<Bf16>(Operation&, Bf16*, std::int64_t, Reduction);
template void Communicator::post_all_reduce<Fp16>(Operation&, Fp16*, std::int64_t, Reduction);

// Communicators with a transport.

void Communicator::use(std::unique_ptr<Transport> transport) {
  check(!transport_ && size_ > 1 && pool_.in_flight() == 0, "cannot set a transport for ", name_,
        " of ", size_, " ranks: it has one rank, has a transport already, or is in use");
  transport_ = std::make_unique<TransportQueue>(std::move(transport), name_, rank_, size_);
  set_waiter(wait_for_queues);
}

void Communicator::reserve_scratch(Bytes bytes) {
  if (transport_) transport_->reserve_scratch(bytes);
}

void Communicator::begin_group() {
  if (transport_) transport_->begin_group();
}

void Communicator::end_group(const Exec& exec) {
  if (transport_) transport_->end_group(exec);
}

Request Communicator::request(Queued& queued) const {
  Request request;
  request.queued_ = &queued;
  return request;
}

Queued& Communicator::queue_transfer(const Exec& exec, const char* verb, std::byte* data,
                                     std::size_t bytes, int peer, int channel) {
  check(peer != rank_, verb, " on ", name_, ": rank ", rank_,
        " cannot exchange messages with itself on a transport");
  Queued& queued = transport_->take(verb, channel, world_rank(peer));
  transport_->transfer(exec, queued,
                       {data, static_cast<Bytes>(bytes), peer, verb == std::string_view("send")});
  return queued;
}

void Communicator::wait(Queued& queued, const char* what) {
  if (!transport_->continue_behind(queued)) {
    const Heartbeat::Waiting waiting({queued.verb, what, name_, queued.number, queued.peer});
    Pause pause;
    while (!transport_->continue_behind(queued)) {
      advance_pending();
      Watchdog::glance();
      pause();
    }
  }
  transport_->release(queued);
}

// Verbs on views. Without a transport, a verb stages device memory through a host buffer and posts
// nonblocking MPI messages. With a transport, the verb is queued on the transport.
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
    pool_.finish(*std::exchange(request.operation_, nullptr));
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
    pool_.finish(*std::exchange(request.operation_, nullptr));
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
  std::byte* on_host = pool_.bring_to_host(operation, exec, raw(data.data()), bytes);
  pool_.copy_back(operation, exec, on_host, raw(data.data()), bytes);
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
  std::byte* on_host = pool_.host_memory(operation, raw(all.data()), bytes_of(all));
  pool_.copy_to_host(exec, on_host + first * static_cast<std::int64_t>(sizeof(T)), raw(mine.data()),
                     bytes_of(mine));
  pool_.wait_for_kernels(exec, "grid/all_gather reads what kernels wrote");
  pool_.copy_back(operation, exec, on_host, raw(all.data()), bytes_of(all));
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
  operation.scratch = pool_.take_buffer(
      static_cast<std::size_t>(reduce_scatter_scratch_bytes(extent(mine, 0), sizeof(T), size_)));
  operation.whole = pool_.bring_to_host(operation, exec, raw(all.data()), bytes_of(all));
  operation.result = raw(mine.data());
  if (pool_.stages()) {
    operation.result =
        operation.staged.data() +
        operation.offsets[static_cast<std::size_t>(rank_)] * static_cast<std::int64_t>(sizeof(T));
    pool_.copy_back(operation, exec, operation.result, raw(mine.data()), bytes_of(mine));
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
Request Communicator::start_all_to_all(const Exec& exec, View1<T> all,
                                       std::span<const std::int64_t> received,
                                       std::type_identity_t<View1<const T>> mine,
                                       std::span<const std::int64_t> sent) {
  if (left_out_) return {};
  if (size_ > 1) count(Verb::all_to_all, bytes_of(mine));
  const auto here = static_cast<std::size_t>(rank_);
  check(std::ssize(received) == size_ && std::ssize(sent) == size_ && sent[here] == received[here],
        "all_to_all on ", name_, ": ", received.size(), " and ", sent.size(), " counts for ", size_,
        " ranks, or unequal counts of rank ", rank_, "'s part for itself");
  const auto sums = [](std::span<const std::int64_t> counts, std::vector<std::int64_t>& offsets) {
    offsets.assign(1, 0);
    for (const std::int64_t n : counts) offsets.push_back(offsets.back() + n);
  };
  sums(received, offsets_);
  sums(sent, sent_offsets_);
  check(offsets_.back() == extent(all, 0) && sent_offsets_.back() == extent(mine, 0),
        "all_to_all on ", name_, ": rank ", rank_, " receives ", extent(all, 0), " and sends ",
        extent(mine, 0), " elements, but the counts give ", offsets_.back(), " and ",
        sent_offsets_.back());
  const auto own = static_cast<std::size_t>(sent[here]);
  if (transport_ || size_ == 1)
    copy<T>(exec, View1<T>(all.data() + offsets_[here], own),
            View1<const T>(mine.data() + sent_offsets_[here], own));
  if (size_ == 1) return {};
  gives("all_to_all", mine);
  if (transport_) {
    Queued& queued = transport_->take("all_to_all", collectives_++, -1);
    transport_->all_to_all(exec, queued, raw(all.data()), offsets_, raw(mine.data()), sent_offsets_,
                           sizeof(T));
    return receives(request(queued), "all_to_all", all);
  }
  Operation& operation = take_collective("all_to_all");
  operation.offsets = offsets_;
  operation.sent_offsets = sent_offsets_;
  operation.whole = pool_.bring_to_host(operation, exec, raw(mine.data()), bytes_of(mine));
  operation.result = raw(all.data());
  if (pool_.stages()) {
    operation.scratch = pool_.take_buffer(bytes_of(all));
    operation.result = operation.scratch.data();
    pool_.copy_back(operation, exec, operation.result, raw(all.data()), bytes_of(all));
  }
  post_all_to_all<T>(operation);
  return receives(request(operation), "all_to_all", all);
}

template <class T>
void Communicator::all_to_all(const Exec& exec, View1<T> all,
                              std::span<const std::int64_t> received,
                              std::type_identity_t<View1<const T>> mine,
                              std::span<const std::int64_t> sent, const char* what) {
  Request request = start_all_to_all<T>(exec, all, received, mine, sent);
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
  const std::byte* on_host = pool_.bring_to_host(operation, exec, raw(data.data()), bytes_of(data));
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
  std::byte* on_host = pool_.host_memory(operation, raw(data.data()), bytes_of(data));
  pool_.copy_back(operation, exec, on_host, raw(data.data()), bytes_of(data));
  if (!pool_.stages()) pool_.wait_for_kernels(exec, "grid/receive writes where kernels read");
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
  std::byte* on_host = pool_.bring_to_host(operation, exec, raw(data.data()), bytes);
  if (rank_ != root) pool_.copy_back(operation, exec, on_host, raw(data.data()), bytes);
  // Pieces of at most 1 GiB, because MPICH 4.0 cannot broadcast a datatype of 4 GiB.
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t n = extent(data, 0);
  const std::int64_t most = std::min<std::int64_t>(counted_elements(), (1 << 30) / size);
  for (std::int64_t first = 0; first < n; first += most)
    expect_mpi(MPI_Ibcast(on_host + first * size, static_cast<int>(std::min(most, n - first)),
                          datatype<T>(), root, communicator_,
                          &operation.messages.emplace_back(MPI_REQUEST_NULL)),
               operation.verb, name_);
  wait(operation, what);
  pool_.finish(operation);
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

#define TRIREME_INSTANTIATE(T)                                                                    \
  template Request Communicator::start_all_gather<T>(const Exec&, View1<T>, View1<const T>,       \
                                                     std::span<const std::int64_t>);              \
  template void Communicator::all_gather<T>(const Exec&, View1<T>, View1<const T>,                \
                                            std::span<const std::int64_t>, const char*);          \
  template Request Communicator::start_reduce_scatter<T>(const Exec&, View1<T>, View1<const T>,   \
                                                         std::span<const std::int64_t>);          \
  template void Communicator::reduce_scatter<T>(const Exec&, View1<T>, View1<const T>,            \
                                                std::span<const std::int64_t>, const char*);      \
  template Request Communicator::start_all_to_all<T>(                                             \
      const Exec&, View1<T>, std::span<const std::int64_t>, View1<const T>,                       \
      std::span<const std::int64_t>);                                                             \
  template void Communicator::all_to_all<T>(const Exec&, View1<T>, std::span<const std::int64_t>, \
                                            View1<const T>, std::span<const std::int64_t>,        \
                                            const char*);                                         \
  template Request Communicator::start_send<T>(const Exec&, View1<const T>, int, int);            \
  template Request Communicator::start_receive<T>(const Exec&, View1<T>, int, int);               \
  template void Communicator::broadcast<T>(const Exec&, View1<T>, int, const char*);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::grid
