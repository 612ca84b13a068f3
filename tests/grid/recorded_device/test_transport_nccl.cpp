#include <trireme/base/check.hpp>
#include <trireme/grid/nccl_library.hpp>
#include <trireme/grid/transport.hpp>
#include <trireme/tensor/streams.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/messages.hpp"
#include "support/recorded_device/communicators.hpp"
#include "support/recorded_device/schedules.hpp"

// transport_nccl.cpp as it is compiled for CUDA, with all ranks in this process.

namespace trireme::grid {
namespace {

using testing::communicators_of;
using testing::count_up;
using testing::counted;
using testing::in_all_schedules;
using testing::message_of;
using testing::observe;
using testing::range;
using testing::recorded_device;

constexpr std::int64_t sent_floats = 5;

/// One rank's stream of kernels, memory and transport.
struct TransportRank {
  explicit TransportRank(Communicator& communicator, std::int64_t floats = 4 * sent_floats)
      : x("x", static_cast<std::size_t>(floats)), transport(make_nccl_transport(communicator)) {}

  const Exec& exec() const { return compute.exec(); }
  std::byte* at(std::int64_t i) const { return reinterpret_cast<std::byte*>(x.data() + i); }
  /// Kernels after this see the results so far.
  void see() {
    Transport::Place place;
    transport->record(place);
    EXPECT_TRUE(transport->continue_behind(exec(), place));
  }

  streams::OwnStream compute{false};
  Kokkos::View<float*, Memory> x;
  std::unique_ptr<Transport> transport;
  std::vector<double> seen;
};

struct TransportJob {
  explicit TransportJob(int size, std::int64_t floats = 4 * sent_floats)
      : communicators(communicators_of(size)) {
    for (auto& c : communicators) ranks.push_back(std::make_unique<TransportRank>(*c, floats));
  }
  ~TransportJob() {
    for (auto& r : ranks) r->exec().fence();
  }
  int size() const { return static_cast<int>(ranks.size()); }
  TransportRank& operator[](int r) { return *ranks[static_cast<std::size_t>(r)]; }

  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<TransportRank>> ranks;
};

/// Kernels write what is sent, read what was received, and overwrite what was sent.
TEST(NcclTransport, RingIsOrderedWithSurroundingKernels) {
  for (const int size : {2, 3})
    in_all_schedules([size] {
      TransportJob job(size);
      for (int turn = 0; turn < 2; ++turn)
        for (int r = 0; r < size; ++r) {
          TransportRank& mine = job[r];
          count_up(mine.exec(), mine.x.data(), sent_floats, 100 * r + turn);
          count_up(mine.exec(), mine.x.data() + sent_floats, sent_floats, -1);
          mine.transport->begin_behind(mine.exec());
          const std::vector<Transport::Transfer> group{
              {mine.at(0), 4 * sent_floats, (r + 1) % size, true},
              {mine.at(sent_floats), 4 * sent_floats, (r + size - 1) % size, false}};
          mine.transport->exchange(group);
          mine.see();
          observe(mine.exec(), mine.x.data() + sent_floats, sent_floats, mine.seen);
          count_up(mine.exec(), mine.x.data(), sent_floats, -2);
        }
      for (int r = 0; r < size; ++r) job[r].exec().fence();
      for (int r = 0; r < size; ++r)
        EXPECT_EQ(job[r].seen, counted(sent_floats, 100 * ((r + size - 1) % size) + 1)) << r;
      EXPECT_EQ(recorded_device().calls("ncclGroupStart"), 2 * size);
      EXPECT_EQ(recorded_device().calls("ncclGroupEnd"), 2 * size);
      EXPECT_EQ(recorded_device().calls("ncclSend"), 2 * size);
    });
}

void gather(TransportJob& job, const std::vector<Bytes>& offsets) {
  for (int r = 0; r < job.size(); ++r) {
    TransportRank& mine = job[r];
    const Bytes begin = offsets[static_cast<std::size_t>(r)] / 4;
    const Bytes count = offsets[static_cast<std::size_t>(r) + 1] / 4 - begin;
    count_up(mine.exec(), mine.x.data(), offsets.back() / 4, -1);
    count_up(mine.exec(), mine.x.data() + begin, count, static_cast<double>(begin));
    mine.transport->begin_behind(mine.exec());
    mine.transport->all_gather(mine.at(0), offsets);
    mine.see();
    observe(mine.exec(), mine.x.data(), offsets.back() / 4, mine.seen);
  }
  for (int r = 0; r < job.size(); ++r) job[r].exec().fence();
  for (int r = 0; r < job.size(); ++r) EXPECT_EQ(job[r].seen, counted(offsets.back() / 4, 0)) << r;
}

TEST(NcclTransport, EvenPartsUseAllGatherAndUnevenPartsBroadcasts) {
  in_all_schedules([] {
    TransportJob job(3);
    gather(job, {0, 20, 40, 60});
    EXPECT_EQ(recorded_device().calls("ncclAllGather"), 3);
    EXPECT_EQ(recorded_device().calls("ncclBroadcast"), 0);
    gather(job, {0, 8, 8, 60});  // the second one is empty
    EXPECT_EQ(recorded_device().calls("ncclAllGather"), 3);
    EXPECT_EQ(recorded_device().calls("ncclBroadcast"), 6);
    EXPECT_EQ(recorded_device().calls("ncclGroupEnd"), 3);
  });
}

TEST(NcclTransport, BroadcastSendsTheRootsData) {
  in_all_schedules([] {
    TransportJob job(3);
    for (int r = 0; r < 3; ++r) {
      count_up(job[r].exec(), job[r].x.data(), sent_floats, 10 * r);
      job[r].transport->begin_behind(job[r].exec());
      job[r].transport->broadcast(job[r].at(0), 4 * sent_floats, 1);
      job[r].see();
      observe(job[r].exec(), job[r].x.data(), sent_floats, job[r].seen);
    }
    for (int r = 0; r < 3; ++r) job[r].exec().fence();
    for (int r = 0; r < 3; ++r) EXPECT_EQ(job[r].seen, counted(sent_floats, 10));
  });
}

/// Adds the others' parts to this rank's.
void sum(const Summands& s, const Exec& exec) {
  const auto own = reinterpret_cast<const float*>(s.own);
  const auto others = reinterpret_cast<const float*>(s.others);
  const auto out = reinterpret_cast<float*>(s.out);
  recorded_device().launch(
      testing::number_of(exec.cuda_stream()), "sum",
      {{range(own, s.n), range(others, s.n * (s.ranks - 1))}, {range(out, s.n)}}, [=] {
        for (std::int64_t i = 0; i < s.n; ++i)
          for (int r = 0; r + 1 < s.ranks; ++r)
            out[i] = (r == 0 ? own[i] : out[i]) + others[r * s.n + i];
      });
}

TEST(NcclTransport, QueueKernelsRunBetweenItsEntries) {
  in_all_schedules([] {
    TransportJob job(2);
    for (int r = 0; r < 2; ++r) {
      TransportRank& mine = job[r];
      count_up(mine.exec(), mine.x.data(), sent_floats, r);
      mine.transport->begin_behind(mine.exec());
      const std::vector<Transport::Transfer> there{
          {mine.at(0), 4 * sent_floats, 1 - r, true},
          {mine.at(sent_floats), 4 * sent_floats, 1 - r, false}};
      mine.transport->exchange(there);
      mine.transport->run(
          sum, {mine.at(0), mine.at(sent_floats), mine.at(2 * sent_floats), sent_floats, r, 2});
      const std::vector<Transport::Transfer> back{
          {mine.at(2 * sent_floats), 4 * sent_floats, 1 - r, true},
          {mine.at(sent_floats), 4 * sent_floats, 1 - r, false}};
      mine.transport->exchange(back);
      mine.see();
      observe(mine.exec(), mine.x.data() + sent_floats, sent_floats, mine.seen);
    }
    for (int r = 0; r < 2; ++r) job[r].exec().fence();
    for (int r = 0; r < 2; ++r) EXPECT_EQ(job[r].seen, (std::vector<double>{1, 3, 5, 7, 9}));
  });
}

TEST(NcclTransport, PlaceIsPassedAfterTheQueueReachesIt) {
  in_all_schedules([] {
    TransportJob job(2);
    Transport::Place places[2];
    const auto transfer = [&](int r) {
      const Transport::Transfer t{job[r].at(0), 4 * sent_floats, 1 - r, r == 0};
      job[r].transport->exchange({&t, 1});
      job[r].transport->record(places[r]);
    };
    transfer(0);
    for (int i = 0; i < 5; ++i) {
      recorded_device().move_on();
      EXPECT_THROW((void)job[0].transport->passed(places[0]), Error)
          << "alone it never ends, which the device reports";
    }
    transfer(1);
    int polls = 0;
    while (!job[0].transport->passed(places[0])) ++polls;
    EXPECT_GT(polls, 0);
    while (!job[1].transport->passed(places[1])) {
    }
    EXPECT_EQ(recorded_device().calls("cudaStreamSynchronize"), 0);
  });
}

TEST(NcclTransport, FinishesWorkBeforeDestroyingTheCommunicator) {
  in_all_schedules([] {
    TransportJob job(2);
    for (int r = 0; r < 2; ++r) {
      const Transport::Transfer t{job[r].at(0), 4 * sent_floats, 1 - r, r == 0};
      job[r].transport->exchange({&t, 1});
    }
    EXPECT_EQ(recorded_device().nccl.communicators, 2);
    for (int r = 0; r < 2; ++r) job[r].transport.reset();
    EXPECT_EQ(recorded_device().nccl.communicators, 0);
    EXPECT_EQ(recorded_device().calls("ncclCommDestroy"), 2);
  });
}

/// What each call of the library answers reaches the user, and leaves no group open.
TEST(NcclTransport, FailuresNameCallCommunicatorAndReason) {
  struct Case {
    const char* function;
    const char* message;
    std::function<void(TransportRank&)> call;
  };
  const auto exchange = [](TransportRank& r) {
    const std::vector<Transport::Transfer> group{{r.at(0), 4, 1, true}, {r.at(1), 4, 1, false}};
    r.transport->exchange(group);
  };
  const auto uneven = [](TransportRank& r) {
    const std::vector<Bytes> offsets{0, 4, 12};
    r.transport->all_gather(r.at(0), offsets);
  };
  const std::vector<Case> cases{{"ncclGroupStart", "beginning a group", exchange},
                                {"ncclSend", "sending", exchange},
                                {"ncclRecv", "receiving", exchange},
                                {"ncclGroupEnd", "exchanging", exchange},
                                {"ncclGroupStart", "beginning a group", uneven},
                                {"ncclBroadcast", "broadcast", uneven},
                                {"ncclGroupEnd", "all-gather of uneven parts", uneven},
                                {"ncclBroadcast", "broadcast",
                                 [](TransportRank& r) { r.transport->broadcast(r.at(0), 4, 0); }},
                                {"ncclAllGather", "all-gather",
                                 [](TransportRank& r) {
                                   const std::vector<Bytes> offsets{0, 4, 8};
                                   r.transport->all_gather(r.at(0), offsets);
                                 }},
                                {"ncclCommGetAsyncError", "asking for errors",
                                 [](TransportRank& r) { r.transport->progress(); }},
                                {"an operation of NCCL", "an outstanding operation",
                                 [](TransportRank& r) { r.transport->progress(); }}};
  for (const Case& c : cases)
    in_all_schedules(
        [&] {
          SCOPED_TRACE(c.function);
          TransportJob job(2);
          recorded_device().fail(c.function, ncclRemoteError);
          const std::string error = message_of([&] { c.call(job[0]); });
          const std::string expected = std::string("NCCL 2.28.3: ") + c.message +
                                       " on test: a failure of another rank (the test lets ";
          EXPECT_NE(error.find(expected), std::string::npos) << error;
          EXPECT_NE(error.find("; set NCCL_DEBUG=INFO for details"), std::string::npos) << error;
          recorded_device().abandon();  // the other rank does not come
        },
        1);
}

TEST(NcclTransport, DeviceFailuresNameTheOperation) {
  in_all_schedules(
      [] {
        TransportJob job(2);
        for (const auto& [function, message] :
             {std::pair("cudaEventRecord", "recording an event"),
              std::pair("cudaStreamWaitEvent", "waiting for an event")}) {
          recorded_device().fail(function, cudaErrorLaunchFailure);
          EXPECT_NE(message_of([&] {
                      job[0].transport->begin_behind(job[0].exec());
                    }).find(std::string("device error while ") + message + ": a failed launch"),
                    std::string::npos);
        }
      },
      1);
}

/// A constructor that fails leaves nothing, whichever of its calls failed.
TEST(NcclTransport, FailedConstructionLeavesNothing) {
  for (const auto& [function, message] :
       {std::pair("ncclGetUniqueId", "NCCL 2.28.3: getting an id on test: a failure of CUDA"),
        std::pair("ncclCommInitRank", "NCCL 2.28.3: making a communicator on test: a failure"),
        std::pair("cudaStreamCreateWithPriority", "device error while creating a stream"),
        std::pair("cudaEventCreateWithFlags", "device error while creating an event")})
    in_all_schedules(
        [&, function = function, message = message] {
          const auto communicators = communicators_of(2);
          recorded_device().fail(function, ncclUnhandledCudaError);
          const std::string error = message_of([&] { make_nccl_transport(*communicators[0]); });
          EXPECT_NE(error.find(message), std::string::npos) << error;
          EXPECT_EQ(recorded_device().nccl.communicators, 0) << function;
        },
        1);
}

TEST(NcclTransport, StreamsHaveHighPriority) {
  in_all_schedules([] {
    TransportJob job(2);
    EXPECT_EQ(recorded_device().urgent_streams(), 2);
    EXPECT_EQ(nccl_name().rfind("NCCL 2.28.3 (", 0), 0U) << nccl_name();
  });
}

}  // namespace
}  // namespace trireme::grid
