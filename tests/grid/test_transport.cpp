#include <trireme/base/check.hpp>
#include <trireme/base/reduction.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/tensor/arena.hpp>

#include "support/device_access.hpp"
#include "support/imitated_transport.hpp"
#include "support/runtime.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace trireme::grid {
namespace {

using trireme::testing::imitate_nccl;
using trireme::testing::runtime;
using trireme::testing::set_values;
using trireme::testing::values_of;

/// Communicators on a transport that has NCCL's rules and moves host memory.
class Transports : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!trireme::testing::can_imitate_nccl)
      GTEST_SKIP() << "the imitated transport moves the memory of hosts";
    if (runtime().ranks() == 1) GTEST_SKIP() << "takes two ranks or more";
    world_ = runtime().world().split(0, runtime().rank(), "test");
    world_->use(imitate_nccl(*world_));
  }
  int rank() const { return world_->rank(); }
  int ranks() const { return world_->size(); }
  int right() const { return (rank() + 1) % ranks(); }
  int left() const { return (rank() + ranks() - 1) % ranks(); }

  std::unique_ptr<Communicator> world_;
};

TEST_F(Transports, RingTransfersFormOneGroup) {
  EXPECT_TRUE(world_->ordered_groups());
  Arena arena("test", 4096);
  const auto out = arena.take<float>(100);
  const auto in = arena.take<float>(100);
  set_values(out, std::vector<float>(100, static_cast<float>(rank())));
  for (int turn = 0; turn < 3; ++turn) {
    set_values(in, std::vector<float>(100, -1));
    world_->begin_group();
    Request sent = world_->start_send<float>(Exec(), out, right(), 0);
    Request received = world_->start_receive<float>(Exec(), in, left(), 0);
    EXPECT_THROW(world_->wait(sent, "within the group"), Error);
    world_->end_group(Exec());
    world_->wait(received, "test");
    world_->wait(sent, "test");
    EXPECT_EQ(values_of(in), std::vector<float>(100, static_cast<float>(left())));
  }
}

/// The rule used to lower and validate programs: a transfer waits for all earlier ones.
TEST_F(Transports, NoMessageIsBufferedOrOvertakes) {
  if (rank() > 1) {
    world_->barrier("polls");
    return;
  }
  Arena arena("test", 4096);
  const auto x = arena.take<double>(2);
  const auto y = arena.take<double>(2);
  if (rank() == 0) {
    set_values(x, std::vector<double>{1, 2});
    set_values(y, std::vector<double>{3, 4});
    Request first = world_->start_send<double>(Exec(), x, 1, 0);
    Request second = world_->start_send<double>(Exec(), y, 1, 1);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_FALSE(world_->done(first));
      EXPECT_FALSE(world_->done(second));
    }
    world_->barrier("polls");
    world_->wait(second, "test");
    world_->wait(first, "test");
  } else {
    world_->barrier("polls");
    // In the order of the sends, whatever the channel.
    Request first = world_->start_receive<double>(Exec(), x, 0, 1);
    Request second = world_->start_receive<double>(Exec(), y, 0, 0);
    world_->wait(second, "test");
    EXPECT_TRUE(world_->done(first));
    EXPECT_EQ(values_of(x), (std::vector<double>{1, 2}));
    EXPECT_EQ(values_of(y), (std::vector<double>{3, 4}));
  }
}

/// Longer than one segment per rank, so that a segment's sums are sent with the next one's inputs.
TEST_F(Transports, LongSumsUseSegments) {
  const std::int64_t n = ranks() * device_reduction_segment_bytes(ranks()) / 4 * 5 / 4 + 37;
  Arena arena("test", 4 * n + 64);
  const auto x = arena.take<float>(n);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<std::int64_t>(i % 1000) + rank());
  set_values(x, values);
  world_->all_reduce(Exec(), x, Reduction::sum, "test");
  const auto sums = values_of(x);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (sums[i] != static_cast<float>(static_cast<std::int64_t>(i % 1000) * ranks() +
                                      ranks() * (ranks() - 1) / 2))
      ++wrong;
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(world_->scratch_bytes(), device_reduction_scratch_bytes(4 * n, ranks()));
}

TEST_F(Transports, ScratchFitsTheLargestSum) {
  Arena arena("test", 1 << 20);
  const auto x = arena.take<Bf16>(100'000);
  world_->all_reduce(Exec(), View1<Bf16>(x.data(), 10), Reduction::sum, "test");
  EXPECT_EQ(world_->scratch_bytes(), device_reduction_scratch_bytes(20, ranks()));
  world_->all_reduce(Exec(), x, Reduction::sum, "test");
  EXPECT_EQ(world_->scratch_bytes(), device_reduction_scratch_bytes(200'000, ranks()));
  world_->reserve_scratch(1'000'000);
  world_->all_reduce(Exec(), x, Reduction::sum, "test");
  EXPECT_EQ(world_->scratch_bytes(), 1'000'000);
}

TEST_F(Transports, RejectASecondTransport) {
  EXPECT_THROW(world_->use(imitate_nccl(*world_)), Error);
  EXPECT_THROW(Communicator::self()->use(nullptr), Error);
}

/// Sums of several communicators that ranks wait for in different orders.
TEST_F(Transports, SeveralCommunicatorsDoNotBlockEachOther) {
  auto other = runtime().world().split(0, runtime().rank(), "other");
  other->use(imitate_nccl(*other));
  Arena arena("test", 1 << 20);
  const auto x = arena.take<double>(20'000);
  const auto y = arena.take<double>(20'000);
  set_values(x, std::vector<double>(20'000, 1.0));
  set_values(y, std::vector<double>(20'000, 2.0));
  Request sum_x = world_->start_all_reduce(Exec(), x, Reduction::sum);
  Request sum_y = other->start_all_reduce(Exec(), y, Reduction::sum);
  if (rank() % 2 == 0) {
    world_->wait(sum_x, "test");
    runtime().world().barrier("between");
    other->wait(sum_y, "test");
  } else {
    other->wait(sum_y, "test");
    runtime().world().barrier("between");
    world_->wait(sum_x, "test");
  }
  EXPECT_EQ(values_of(x), std::vector<double>(20'000, ranks()));
  EXPECT_EQ(values_of(y), std::vector<double>(20'000, 2.0 * ranks()));
}

}  // namespace
}  // namespace trireme::grid
