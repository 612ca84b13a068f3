// Communicators of MPI: construction, buffers, waiting, and verbs on host memory. Messages are
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
  for (const auto& operation : operations_) remove_pending(*operation);
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
  if (idle_operations_.empty()) {
    Operation& made = *operations_.emplace_back(std::make_unique<Operation>());
    made.communicator = name_;
    made.mpi = communicator_;
    made.rank = rank_;
    made.ranks = size_;
    idle_operations_.push_back(&made);
  }
  Operation& operation = *idle_operations_.back();
  idle_operations_.pop_back();
  operation.verb = verb;
  operation.number = number;
  operation.peer = -1;
  operation.then = nullptr;
  operation.messages.clear();
  return operation;
}

Operation& Communicator::take_collective(const char* verb) {
  Operation& operation = take(verb, collectives_++);
  operation.tag = channels_ + static_cast<int>(operation.number % tag_pairs_) * 2;
  return operation;
}

void Communicator::give_back(Operation& operation) {
  give_back(operation.scratch);
  give_back(operation.staged);
  operation.copy_back.reset();
  idle_operations_.push_back(&operation);
}

StagingBuffer Communicator::take_buffer(std::size_t bytes) {
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

void Communicator::give_back(StagingBuffer& buffer) {
  if (buffer.extent(0) > 0) idle_buffers_.push_back(std::exchange(buffer, StagingBuffer()));
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
      operation.scratch = take_buffer(static_cast<std::size_t>(bytes));
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
  give_back(operation);
}

void Communicator::broadcast(std::span<std::byte> data, int root, const char* what) {
  if (size_ == 1) return;
  Operation& operation = take_collective("broadcast");
  expect_mpi(MPI_Ibcast(data.data(), message_count(std::ssize(data)), MPI_BYTE, root, communicator_,
                        &message(operation)),
             what, name_);
  wait(operation, what);
  give_back(operation);
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
  give_back(operation);
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
  give_back(operation);
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

void Communicator::barrier(const char* what) {
  if (size_ == 1) return;
  Operation& operation = take_collective("barrier");
  expect_mpi(MPI_Ibarrier(communicator_, &message(operation)), what, name_);
  wait(operation, what);
  give_back(operation);
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

namespace {

void look_around(Pause& pause) {
  advance_pending();
  Watchdog::glance();
  pause();
}

/// The first unfinished verb, in call order over all communicators of this process with a
/// transport.
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

/// A wait for the device may cover a whole step. Each verb that ends meanwhile is progress, so the
/// rank publishes the verb that it has reached.
void wait_for_device(const std::function<bool()>& done, const char* reason) {
  std::optional<Heartbeat::Waiting> waiting;
  std::int64_t said = -1;
  Pause pause;
  while (!done()) {
    const FirstUnfinished at = first_unfinished(reason);
    if (at.turn != std::exchange(said, at.turn)) waiting.emplace(at.wait);
    look_around(pause);
  }
}

}  // namespace

void Communicator::use(std::unique_ptr<Transport> transport) {
  check(!transport_ && size_ > 1 && operations_in_flight() == 0, "cannot set a transport for ",
        name_, " of ", size_, " ranks: it has one rank, has a transport already, or is in use");
  transport_ = std::make_unique<TransportQueue>(std::move(transport), name_, rank_, size_);
  set_waiter(wait_for_device);
}

std::size_t Communicator::operations_in_flight() const {
  return operations_.size() - idle_operations_.size();
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
    while (!transport_->continue_behind(queued)) look_around(pause);
  }
  transport_->release(queued);
}

}  // namespace trireme::grid
