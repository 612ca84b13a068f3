// Events and copy queues as events and streams of CUDA or HIP. In other builds, a queue holds its
// copies until something waits for them.
#include <trireme/tensor/copy_queue.hpp>

#include <trireme/base/check.hpp>
#include <trireme/tensor/streams.hpp>

#include <cstdint>
#include <deque>

namespace trireme {

#ifdef TRIREME_HAS_STREAMS

using streams::expect_success;
using streams::stream_of;

struct Event::State {
  State() { expect_success(streams::create(&event), "creating an event"); }
  State(const State&) = delete;
  ~State() { (void)streams::destroy(event); }
  streams::Event event{};
};

struct CopyQueue::State {
  State() { expect_success(streams::create(&stream), "creating a stream"); }
  State(const State&) = delete;
  ~State() { (void)streams::destroy(stream); }
  streams::Stream stream{};
};

void Event::record(const Exec& exec) {
  expect_success(streams::record(state_->event, stream_of(exec)), "recording an event");
}
void Event::record(const CopyQueue& queue) {
  expect_success(streams::record(state_->event, queue.state().stream), "recording an event");
}
bool Event::done() const {
  const streams::Status status = streams::query(state_->event);
  if (status == streams::not_ready) return false;
  expect_success(status, "querying an event");
  return true;
}
void wait(const Exec& exec, const Event& event) {
  expect_success(streams::wait(stream_of(exec), event.state().event), "waiting for an event");
}
void CopyQueue::wait(const Event& event) const {
  expect_success(streams::wait(state_->stream, event.state().event), "waiting for an event");
}
void CopyQueue::to_host(std::byte* staging, const std::byte* device, Bytes bytes) const {
  expect_success(streams::copy(staging, device, static_cast<std::size_t>(bytes), state_->stream),
                 "copying to host memory");
}
void CopyQueue::to_device(std::byte* device, const std::byte* staging, Bytes bytes) const {
  expect_success(streams::copy(device, staging, static_cast<std::size_t>(bytes), state_->stream),
                 "copying to the device");
}

#else

namespace {

template <class Space>
using BytesIn = Kokkos::View<std::byte*, Kokkos::LayoutRight, Space, Unmanaged>;
template <class Space>
using ConstBytesIn = Kokkos::View<const std::byte*, Kokkos::LayoutRight, Space, Unmanaged>;

}  // namespace

/// A position in a queue. `queue` is null before the first record() and after record(exec).
struct Event::State {
  CopyQueue::State* queue = nullptr;
  std::int64_t until = 0;
};

struct CopyQueue::State {
  /// A copy or, if `event.queue` is set, an event to wait for before the next copy.
  struct Entry {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    bool to_host = false;
    Event::State event;
  };

  std::deque<Entry> entries;
  std::int64_t done = 0;

  std::int64_t queued() const { return done + static_cast<std::int64_t>(entries.size()); }

  void run_until(std::int64_t end) {
    while (done < end && !entries.empty()) {
      const Entry entry = entries.front();
      entries.pop_front();
      ++done;
      if (entry.event.queue != nullptr) {
        entry.event.queue->run_until(entry.event.until);
      } else if (entry.to_host) {
        Kokkos::deep_copy(BytesIn<StagingMemory>(entry.to, entry.bytes),
                          ConstBytesIn<Memory>(entry.from, entry.bytes));
      } else {
        Kokkos::deep_copy(BytesIn<Memory>(entry.to, entry.bytes),
                          ConstBytesIn<StagingMemory>(entry.from, entry.bytes));
      }
    }
  }
};

void Event::record(const Exec& exec) {
  exec.fence();
  *state_ = {};
}
void Event::record(const CopyQueue& queue) {
  *state_ = {&queue.state(), queue.state().queued()};
}
bool Event::done() const {
  if (state_->queue != nullptr) state_->queue->run_until(state_->until);
  return true;
}
void wait(const Exec&, const Event& event) {
  if (event.state().queue != nullptr) event.state().queue->run_until(event.state().until);
}
void CopyQueue::wait(const Event& event) const {
  if (event.state().queue == nullptr || event.state().queue == state_.get()) return;
  state_->entries.push_back({nullptr, nullptr, 0, false, event.state()});
}
void CopyQueue::to_host(std::byte* staging, const std::byte* device, Bytes bytes) const {
  state_->entries.push_back({staging, device, static_cast<std::size_t>(bytes), true, {}});
}
void CopyQueue::to_device(std::byte* device, const std::byte* staging, Bytes bytes) const {
  state_->entries.push_back({device, staging, static_cast<std::size_t>(bytes), false, {}});
}

#endif

Event::Event() : state_(std::make_unique<State>()) {}
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
Event::~Event() = default;

CopyQueue::CopyQueue() : state_(std::make_unique<State>()) {}
CopyQueue::CopyQueue(CopyQueue&&) noexcept = default;
CopyQueue& CopyQueue::operator=(CopyQueue&&) noexcept = default;
CopyQueue::~CopyQueue() = default;

}  // namespace trireme
