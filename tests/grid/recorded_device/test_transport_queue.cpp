#include <trireme/base/reduction.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/grid/transport_queue.hpp>
#include <trireme/tensor/streams.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "support/recorded_device/communicators.hpp"
#include "support/recorded_device/schedules.hpp"

// The verbs of transport_queue.cpp on the transport by NCCL, with all ranks in this process.

namespace trireme::grid {
namespace {

using testing::count_up;
using testing::counted;
using testing::in_all_schedules;
using testing::observe;

struct QueueRank {
  QueueRank(Communicator& c, std::int64_t floats)
      : x("x", static_cast<std::size_t>(floats)),
        queue(make_nccl_transport(c), "test", c.rank(), c.size()) {}

  const Exec& exec() const { return compute.exec(); }
  /// What a communicator's wait does.
  void wait(Queued& queued) {
    EXPECT_TRUE(queue.continue_behind(queued));
    queue.release(queued);
  }

  streams::OwnStream compute{false};
  Kokkos::View<float*, Memory> x;
  TransportQueue queue;
  std::vector<double> seen;
};

struct QueueJob {
  QueueJob(int size, std::int64_t floats, Bytes scratch)
      : communicators(testing::communicators_of(size)) {
    for (auto& c : communicators) {
      ranks.push_back(std::make_unique<QueueRank>(*c, floats));
      ranks.back()->queue.reserve_scratch(scratch);
    }
  }
  ~QueueJob() {
    for (auto& r : ranks) r->exec().fence();
  }
  int size() const { return static_cast<int>(ranks.size()); }
  QueueRank& operator[](int r) { return *ranks[static_cast<std::size_t>(r)]; }

  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<QueueRank>> ranks;
};

/// Sum over ranks of elements from `first` on of what count_up writes with first = 1000 r.
std::vector<double> sums(int ranks, std::int64_t n, std::int64_t first = 0) {
  std::vector<double> x;
  for (std::int64_t i = first; i < first + n; ++i)
    x.push_back(static_cast<double>(ranks * i + 1000 * ranks * (ranks - 1) / 2));
  return x;
}

/// Twice in a row, with kernels that write new inputs, read the sums and overwrite them.
void all_reduce(int ranks, std::int64_t n) {
  QueueJob job(ranks, n, device_reduction_scratch_bytes(4 * n, ranks));
  for (int turn = 0; turn < 2; ++turn)
    for (int r = 0; r < ranks; ++r) {
      QueueRank& mine = job[r];
      count_up(mine.exec(), mine.x.data(), n, 1000 * r + turn);
      Queued& queued = mine.queue.take("all_reduce", turn, -1);
      mine.queue.all_reduce(mine.exec(), queued, mine.x.data(), n, Reduction::sum);
      mine.wait(queued);
      observe(mine.exec(), mine.x.data(), n, mine.seen);
    }
  for (int r = 0; r < ranks; ++r) job[r].exec().fence();
  for (int r = 0; r < ranks; ++r) EXPECT_EQ(job[r].seen, sums(ranks, n, 1)) << r;
}

TEST(TransportQueue, GathersSmallSumsAndExchangesLongSums) {
  for (const int ranks : {2, 3}) {
    in_all_schedules([ranks] { all_reduce(ranks, 37); });
    in_all_schedules([ranks] { all_reduce(ranks, 17'003); });
  }
}

TEST(TransportQueue, SegmentsOverlapWithoutARace) {
  const std::int64_t n = 2 * device_reduction_segment_bytes(2) / 4 + 100;  // float holds its sums
  in_all_schedules(
      [n] {
        QueueJob job(2, n, device_reduction_scratch_bytes(4 * n, 2));
        for (int r = 0; r < 2; ++r) {
          QueueRank& mine = job[r];
          std::fill_n(mine.x.data(), n, static_cast<float>(r + 1));
          Queued& queued = mine.queue.take("all_reduce", 0, -1);
          mine.queue.all_reduce(mine.exec(), queued, mine.x.data(), n, Reduction::sum);
          mine.wait(queued);
        }
        for (int r = 0; r < 2; ++r) job[r].exec().fence();
        for (int r = 0; r < 2; ++r)
          EXPECT_EQ(std::count(job[r].x.data(), job[r].x.data() + n, 3.0F), n) << r;
      },
      4);
}

TEST(TransportQueue, ReduceScatterGivesEachRankItsPart) {
  in_all_schedules([] {
    const std::vector<std::int64_t> offsets{0, 10, 10, 37};
    QueueJob job(3, 80, 4 * 27 * 2);
    for (int r = 0; r < 3; ++r) {
      QueueRank& mine = job[r];
      count_up(mine.exec(), mine.x.data(), 37, 1000 * r);
      const auto i = static_cast<std::size_t>(r);
      Queued& queued = mine.queue.take("reduce_scatter", 0, -1);
      mine.queue.reduce_scatter<float>(mine.exec(), queued, mine.x.data() + 40, mine.x.data(),
                                       offsets);
      mine.wait(queued);
      observe(mine.exec(), mine.x.data() + 40, offsets[i + 1] - offsets[i], mine.seen);
    }
    for (int r = 0; r < 3; ++r) job[r].exec().fence();
    for (int r = 0; r < 3; ++r) {
      const auto i = static_cast<std::size_t>(r);
      EXPECT_EQ(job[r].seen, sums(3, offsets[i + 1] - offsets[i], offsets[i])) << r;
    }
  });
}

/// Two sums in flight at a time share the scratch: only the queue's order keeps them apart.
TEST(TransportQueue, SumsInFlightShareTheScratch) {
  in_all_schedules([] {
    QueueJob job(2, 80, 4 * 40);
    for (int r = 0; r < 2; ++r) {
      QueueRank& mine = job[r];
      Queued* queued[2];
      for (int k = 0; k < 2; ++k) {
        count_up(mine.exec(), mine.x.data() + 40 * k, 40, 1000 * r);
        queued[k] = &mine.queue.take("all_reduce", k, -1);
        mine.queue.all_reduce(mine.exec(), *queued[k], mine.x.data() + 40 * k, 40, Reduction::sum);
      }
      for (int k : {1, 0}) mine.wait(*queued[k]);
      observe(mine.exec(), mine.x.data(), 80, mine.seen);
    }
    for (int r = 0; r < 2; ++r) job[r].exec().fence();
    for (int r = 0; r < 2; ++r) {
      auto expected = sums(2, 40);
      expected.insert(expected.end(), expected.begin(), expected.begin() + 40);
      EXPECT_EQ(job[r].seen, expected) << r;
    }
  });
}

/// Both directions in one group, as a schedule's neighbours exchange them.
TEST(TransportQueue, GroupHoldsTransfersUntilItsEnd) {
  in_all_schedules([] {
    QueueJob job(2, 20, 0);
    for (int r = 0; r < 2; ++r) {
      QueueRank& mine = job[r];
      const auto at = [&](int i) { return reinterpret_cast<std::byte*>(mine.x.data() + i); };
      count_up(mine.exec(), mine.x.data(), 10, 100 * r);
      mine.queue.begin_group();
      Queued& sent = mine.queue.take("send", 0, 1 - r);
      mine.queue.transfer(mine.exec(), sent, {at(0), 40, 1 - r, true});
      Queued& received = mine.queue.take("receive", 0, 1 - r);
      mine.queue.transfer(mine.exec(), received, {at(10), 40, 1 - r, false});
      EXPECT_THROW((void)mine.queue.continue_behind(sent), Error);
      mine.queue.end_group(mine.exec());
      mine.wait(sent);
      mine.wait(received);
      observe(mine.exec(), mine.x.data() + 10, 10, mine.seen);
      count_up(mine.exec(), mine.x.data(), 10, -1);
    }
    for (int r = 0; r < 2; ++r) job[r].exec().fence();
    for (int r = 0; r < 2; ++r) EXPECT_EQ(job[r].seen, counted(10, 100 * (1 - r)));
    EXPECT_EQ(job[0].queue.oldest(), nullptr);
  });
}

}  // namespace
}  // namespace trireme::grid
