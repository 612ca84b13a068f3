#include <trireme/base/check.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/grid/watchdog.hpp>
#include <trireme/tensor/fence.hpp>

#include <sched.h>

#include <utility>

/// Communicators on a transport.
namespace trireme::grid {
namespace {

void look_around() {
  advance_pending();
  Watchdog::glance();
  sched_yield();
}

/// A wait for the device tells what it hangs at: the first verb that a transport has not finished.
void wait_for_device(const std::function<bool()>& done, const char* reason) {
  if (done()) return;
  Wait wait{"device", reason, "", 0, -1};
  for (TransportQueue* queue : transport_queues())
    if (const Queued* oldest = queue->oldest()) {
      wait = {oldest->verb, reason, queue->name(), oldest->number, oldest->peer};
      break;
    }
  const Heartbeat::Waiting waiting(wait);
  while (!done()) look_around();
}

}  // namespace

void Communicator::use(std::unique_ptr<Transport> transport) {
  check(!transport_ && size_ > 1 && operations_in_flight() == 0, "a transport for ", name_, " of ",
        size_, " ranks, which has one or is in use");
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
                                     std::size_t bytes, int peer, int lane) {
  check(peer != rank_, verb, " on ", name_, ": rank ", rank_,
        " and itself, which no transport passes on");
  Queued& queued = transport_->take(verb, lane, world_rank(peer));
  transport_->transfer(exec, queued,
                       {data, static_cast<Bytes>(bytes), peer, verb == std::string_view("send")});
  return queued;
}

void Communicator::wait(Queued& queued, const char* what) {
  if (!transport_->continue_behind(queued)) {
    const Heartbeat::Waiting waiting({queued.verb, what, name_, queued.number, queued.peer});
    while (!transport_->continue_behind(queued)) look_around();
  }
  transport_->release(queued);
}

}  // namespace trireme::grid
