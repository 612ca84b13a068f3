// Communicators with a transport: their waits, and the state that the watchdog sees meanwhile.
#include <trireme/base/check.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/grid/pause.hpp>
#include <trireme/grid/watchdog.hpp>
#include <trireme/tensor/fence.hpp>

#include <optional>
#include <utility>

namespace trireme::grid {
namespace {

void look_around(Pause& pause) {
  advance_pending();
  Watchdog::glance();
  pause();
}

/// The first unfinished verb, in call order over all communicators. Later calls may be queued after
/// it on the device, but not before it.
struct FirstUnfinished {
  std::int64_t turn = 0;  ///< 0: none; the host waits for this rank's kernels
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
