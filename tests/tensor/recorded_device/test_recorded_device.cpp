#include <gtest/gtest.h>

#include <trireme/tensor/streams.hpp>

#include "support/recorded_device/schedules.hpp"

// The device itself: it reports what the other tests of this program rely on.

namespace trireme::testing {
namespace {

using RecordedDeviceTest = ::testing::Test;

int streams_and_kernels(bool with_event, int schedule) {
  recorded_device().restart(schedule);
  std::vector<float> x(4);
  std::vector<double> seen;
  {
    const streams::OwnStream one(false), two(false);
    streams::Event event{};
    (void)streams::create(&event);
    count_up(one.exec(), x.data(), 4, 5);
    (void)streams::record(event, one.stream());
    if (with_event) (void)streams::wait(two.stream(), event);
    observe(two.exec(), x.data(), 4, seen);
    two.exec().fence();
    (void)streams::destroy(event);
  }
  EXPECT_EQ(recorded_device().problems_at_end().size(), with_event ? 0U : 1U);
  return seen == counted(4, 5) ? 0 : 1;
}

TEST(RecordedDevice, DetectsAMissingEventInEverySchedule) {
  int wrong = 0;
  for (int schedule = 0; schedule < 12; ++schedule) {
    EXPECT_EQ(streams_and_kernels(true, schedule), 0);
    wrong += streams_and_kernels(false, schedule);
  }
  EXPECT_GT(wrong, 2);
  EXPECT_LT(wrong, 10);
}

TEST(RecordedDevice, DetectsHostReadsBeforeAWait) {
  recorded_device().restart(0);
  std::vector<float> x(4);
  const streams::OwnStream stream(false);
  count_up(stream.exec(), x.data(), 4, 5);
  recorded_device().host_reads(x.data(), 8, "a look");
  ASSERT_EQ(recorded_device().problems().size(), 1U);
  EXPECT_EQ(recorded_device().problems()[0],
            "a look (host) reads what count_up (stream 1) writes, and nothing orders them");
  stream.exec().fence();
  recorded_device().host_writes(x.data(), 8, "another");
  EXPECT_EQ(recorded_device().problems().size(), 1U);
}

TEST(RecordedDevice, DetectsUseOfDestroyedObjects) {
  recorded_device().restart(0);
  streams::Stream stream{};
  streams::Event event{};
  (void)streams::create(&stream);
  (void)streams::create(&event);
  float x = 0.0F;
  count_up(Exec(stream), &x, 1, 1);  // Exec waits when it ends
  recorded_device().launch(number_of(stream), "late", {}, [] {});
  (void)streams::destroy(stream);
  (void)streams::destroy(event);
  (void)streams::record(event, stream);
  (void)streams::wait(stream, event);
  const auto problems = recorded_device().problems_at_end();
  const std::vector<std::string> expected{
      "stream 1 is destroyed with outstanding work", "recording event 1, which does not exist",
      "recording the end of stream 1, which does not exist",
      "waiting for event 1, which does not exist", "a wait in stream 1, which does not exist"};
  EXPECT_EQ(problems, expected);
}

TEST(RecordedDevice, DetectsMemoryFreedInUse) {
  recorded_device().restart(0);
  const streams::OwnStream stream(false);
  {
    const Kokkos::View<float*, Memory> x("x", 4);
    count_up(stream.exec(), x.data(), 4, 5);
    stream.exec().fence();
    count_up(stream.exec(), x.data(), 4, 5);
  }
  const std::vector<std::string> expected{"x is freed before count_up (stream 1)"};
  EXPECT_EQ(recorded_device().problems(), expected);
}

TEST(RecordedDevice, DetectsBlockingCopiesOfPageableMemory) {
  recorded_device().restart(0);
  const streams::OwnStream stream(false);
  const Kokkos::View<float*, Memory> x("x", 4);
  float y[4];
  count_up(stream.exec(), x.data(), 4, 5);
  (void)streams::copy(y, x.data(), 16, stream.stream());
  EXPECT_EQ(y[3], 8.0F);
  const std::vector<std::string> expected{
      "the host is held in a copy of pageable memory until stream 1 ends"};
  EXPECT_EQ(recorded_device().problems(), expected);
}

}  // namespace
}  // namespace trireme::testing
