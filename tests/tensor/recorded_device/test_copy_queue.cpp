#include <trireme/base/check.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/copy_queue.hpp>
#include <trireme/tensor/fence.hpp>
#include <trireme/tensor/streams.hpp>

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "support/messages.hpp"
#include "support/recorded_device/schedules.hpp"

// copy_queue.cpp and fence.cpp as they are compiled for CUDA.

namespace trireme {
namespace {

using testing::count_up;
using testing::counted;
using testing::in_all_schedules;
using testing::message_of;
using testing::observe;
using testing::recorded_device;

constexpr std::int64_t copied_floats = 6;
constexpr Bytes copied_bytes = copied_floats * 4;

struct Memories {
  Kokkos::View<float*, Memory> x{"x", copied_floats};
  StagingBuffer staging{"staging", copied_bytes};
  std::byte* device() const { return reinterpret_cast<std::byte*>(x.data()); }
  const float* numbers() const { return reinterpret_cast<const float*>(staging.data()); }
};

TEST(CopyQueue, CopiesToTheHostInOrderOfEvents) {
  in_all_schedules([] {
    const streams::OwnStream compute(false);
    const Memories m;
    const CopyQueue queue;
    Event computed, copied;
    count_up(compute.exec(), m.x.data(), copied_floats, 3);
    computed.record(compute.exec());
    queue.wait(computed);
    queue.to_host(m.staging.data(), m.device(), copied_bytes);
    copied.record(queue);
    wait(compute.exec(), copied);
    count_up(compute.exec(), m.x.data(), copied_floats, 100);  // overwrites what was copied
    fence(copied, "test");
    recorded_device().host_reads(m.staging.data(), copied_bytes, "the test");
    EXPECT_EQ(std::vector<double>(m.numbers(), m.numbers() + copied_floats),
              counted(copied_floats, 3));
    compute.exec().fence();
  });
}

TEST(CopyQueue, KernelsReadAfterTheCopyIn) {
  in_all_schedules([] {
    const streams::OwnStream compute(false);
    const Memories m;
    const CopyQueue queue;
    Event copied;
    std::vector<double> seen;
    recorded_device().host_writes(m.staging.data(), copied_bytes, "the test");
    for (int i = 0; i < copied_floats; ++i)
      reinterpret_cast<float*>(m.staging.data())[i] = 7.0F + static_cast<float>(i);
    queue.to_device(m.device(), m.staging.data(), copied_bytes);
    copied.record(queue);
    wait(compute.exec(), copied);
    observe(compute.exec(), m.x.data(), copied_floats, seen);
    fence(compute.exec(), "test");
    EXPECT_EQ(seen, counted(copied_floats, 7));
  });
}

TEST(CopyQueue, OneQueueIsOrderedAndTwoAreConcurrent) {
  in_all_schedules([] {
    const Memories from, to;
    const CopyQueue out, in;
    Event stored, loaded;
    std::fill_n(from.x.data(), copied_floats, 5.0F);
    out.to_host(from.staging.data(), from.device(), copied_bytes);
    stored.record(out);
    in.wait(stored);
    in.to_device(to.device(), from.staging.data(), copied_bytes);
    in.to_host(to.staging.data(), to.device(), copied_bytes);
    loaded.record(in);
    fence(loaded, "test");
    recorded_device().host_reads(to.staging.data(), copied_bytes, "the test");
    EXPECT_EQ(to.numbers()[copied_floats - 1], 5.0F);
  });
}

/// A wait of a stream is for the last record before it.
TEST(Event, RecordingAgainKeepsEarlierWaits) {
  in_all_schedules([] {
    const streams::OwnStream compute(false);
    const Memories m;
    const CopyQueue queue;
    Event event, end;
    wait(compute.exec(), event);  // never recorded: complete
    EXPECT_TRUE(event.done());
    queue.to_device(m.device(), m.staging.data(), copied_bytes);
    event.record(queue);
    wait(compute.exec(), event);
    count_up(compute.exec(), m.x.data(), copied_floats, 1);
    event.record(compute.exec());
    queue.wait(event);
    queue.to_host(m.staging.data(), m.device(), copied_bytes);
    end.record(queue);
    fence(end, "test");
    EXPECT_EQ(m.numbers()[0], 1.0F);
  });
}

TEST(Event, QueriesNeitherBlockNorReturnEarly) {
  in_all_schedules([] {
    const streams::OwnStream compute(false);
    const Memories m;
    Event event;
    const std::int64_t before = fence_count();
    count_up(compute.exec(), m.x.data(), copied_floats, 1);
    event.record(compute.exec());
    EXPECT_FALSE(event.done());
    EXPECT_EQ(m.x.data()[1], 2.0F);  // the query moved the device on by the kernel
    fence(event, "test");
    EXPECT_EQ(fence_count(), before + 1);
    fence(event, "test");
    EXPECT_EQ(fence_count(), before + 1) << "a complete event is not waited for";
    EXPECT_EQ(recorded_device().calls("cudaStreamSynchronize"), 0);
    EXPECT_EQ(recorded_device().calls("cudaEventSynchronize"), 0);
  });
}

/// Host memory that is not page-locked is copied to only once the device is idle, so that the host
/// waits where it can report a hang.
TEST(CopyToHost, WaitsBeforeTheCopy) {
  for (const bool with_waiter : {false, true})
    in_all_schedules([with_waiter] {
      const streams::OwnStream compute(false);
      const Memories m;
      int waits = 0;
      if (with_waiter)
        set_waiter([&](const std::function<bool()>& done, const char*) {
          EXPECT_EQ(recorded_device().calls("cudaMemcpyAsync"), 0);
          while (!done()) ++waits;
        });
      count_up(compute.exec(), m.x.data(), copied_floats, 3);
      std::vector<float> y(copied_floats);
      copy_to_host<float>(compute.exec(), y, View1<float>(m.x.data(), copied_floats), "test");
      set_waiter({});
      recorded_device().host_reads(y.data(), copied_bytes, "the test");
      EXPECT_EQ(std::vector<double>(y.begin(), y.end()), counted(copied_floats, 3));
      EXPECT_EQ(waits > 0, with_waiter);
    });
}

TEST(CopyQueue, MovesAndDestroysItsStream) {
  in_all_schedules([] {
    CopyQueue queue, other;
    Event event, second;
    EXPECT_EQ(recorded_device().streams(), 2);
    event.record(queue);
    fence(event, "test");
    queue = std::move(other);
    second = std::move(event);
    EXPECT_EQ(recorded_device().streams(), 1);
    EXPECT_EQ(recorded_device().events(), 1);
    second.record(queue);
    fence(second, "test");
  });
}

TEST(CopyQueue, FailuresNameTheOperation) {
  struct Case {
    const char* function;
    const char* message;
    std::function<void(const Exec&, CopyQueue&, Event&)> call;
  };
  const Memories m;
  const std::vector<Case> cases{
      {"cudaEventRecord", "recording an event", [](auto& exec, auto&, auto& e) { e.record(exec); }},
      {"cudaEventRecord", "recording an event", [](auto&, auto& q, auto& e) { e.record(q); }},
      {"cudaEventQuery", "querying an event", [](auto&, auto&, auto& e) { (void)e.done(); }},
      {"cudaStreamWaitEvent", "waiting for an event", [](auto&, auto& q, auto& e) { q.wait(e); }},
      {"cudaStreamWaitEvent", "waiting for an event",
       [](auto& exec, auto&, auto& e) { wait(exec, e); }},
      {"cudaMemcpyAsync", "copying to host memory",
       [&](auto&, auto& q, auto&) { q.to_host(m.staging.data(), m.device(), 4); }},
      {"cudaMemcpyAsync", "copying to the device",
       [&](auto&, auto& q, auto&) { q.to_device(m.device(), m.staging.data(), 4); }},
      {"cudaStreamCreateWithPriority", "creating a stream",
       [](auto&, auto&, auto&) { const CopyQueue another; }},
      {"cudaDeviceGetStreamPriorityRange", "creating a stream",
       [](auto&, auto&, auto&) { const CopyQueue another; }},
      {"cudaEventCreateWithFlags", "creating an event",
       [](auto&, auto&, auto&) { const Event another; }}};
  for (const Case& c : cases)
    in_all_schedules(
        [&] {
          SCOPED_TRACE(c.message);
          const streams::OwnStream compute(false);
          CopyQueue queue;
          Event event;
          recorded_device().fail(c.function, cudaErrorLaunchFailure);
          EXPECT_NE(message_of([&] {
                      c.call(compute.exec(), queue, event);
                    }).find(std::string("device error while ") + c.message + ": a failed launch"),
                    std::string::npos);
        },
        1);
}

}  // namespace
}  // namespace trireme
