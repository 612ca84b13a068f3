#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/grid/nccl_transport.hpp>
#include <trireme/tensor/streams.hpp>

#if defined(TRIREME_HAS_NCCL)
#if defined(KOKKOS_ENABLE_HIP)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif
#endif

#include <string>

namespace trireme::grid {

#if defined(TRIREME_HAS_NCCL)
namespace {

using streams::expect_success;

/// NCCL counts bytes: what is moved keeps its bits, and sums are ours, in rank order.
class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(Communicator& communicator)
      : name_(communicator.name()),
        rank_(communicator.rank()),
        ranks_(communicator.size()),
        queue_(true) {
    ncclUniqueId id{};
    if (rank_ == 0) expect(ncclGetUniqueId(&id), "getting an id");
    const std::string bits = communicator.broadcast(std::string(id.internal, sizeof(id.internal)),
                                                    0, "the id of an NCCL communicator");
    bits.copy(id.internal, sizeof(id.internal));
    expect(ncclCommInitRank(&comm_, ranks_, id, rank_), "making a communicator");
    expect_success(streams::create(&behind_), "creating an event of the device");
  }

  ~NcclTransport() override {
    queue_.exec().fence();
    (void)ncclCommDestroy(comm_);
    (void)streams::destroy(behind_);
  }

  void begin_behind(const Exec& exec) override {
    expect_success(streams::record(behind_, streams::stream_of(exec)), "recording an event");
    expect_success(streams::wait(queue_.stream(), behind_), "waiting for an event");
  }

  void exchange(std::span<const Transfer> group) override {
    expect(ncclGroupStart(), "beginning a group");
    for (const Transfer& t : group) {
      const auto bytes = static_cast<std::size_t>(t.bytes);
      if (t.sends)
        expect(ncclSend(t.data, bytes, ncclUint8, t.peer, comm_, queue_.stream()), "sending");
      else
        expect(ncclRecv(t.data, bytes, ncclUint8, t.peer, comm_, queue_.stream()), "receiving");
    }
    expect(ncclGroupEnd(), "exchanging");
  }

  void all_gather(std::byte* all, std::span<const Bytes> offsets) override {
    const auto length = [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      return offsets[r + 1] - offsets[r];
    };
    const auto part = [&](int rank) { return all + offsets[static_cast<std::size_t>(rank)]; };
    bool even = true;
    for (int r = 1; r < ranks_; ++r) even = even && length(r) == length(0);
    if (even) {
      expect(ncclAllGather(part(rank_), all, static_cast<std::size_t>(length(0)), ncclUint8, comm_,
                           queue_.stream()),
             "all-gather");
      return;
    }
    expect(ncclGroupStart(), "beginning a group");
    for (int r = 0; r < ranks_; ++r)
      if (length(r) > 0) broadcast(part(r), length(r), r);
    expect(ncclGroupEnd(), "all-gather of uneven parts");
  }

  void broadcast(std::byte* data, Bytes bytes, int root) override {
    expect(ncclBroadcast(data, data, static_cast<std::size_t>(bytes), ncclUint8, root, comm_,
                         queue_.stream()),
           "broadcast");
  }

  void run(void (*launch)(const Summands&, const Exec&), const Summands& summands) override {
    launch(summands, queue_.exec());
  }

  void record(Place& place) override {
    if (!place.mark) place.mark = std::make_unique<Mark>();
    place.mark->record(queue_.exec());
  }
  bool continue_behind(const Exec& exec, const Place& place) override {
    wait(exec, *place.mark);
    return true;
  }
  bool passed(const Place& place) override { return place.mark->done(); }

  void progress() override {
    ncclResult_t state = ncclSuccess;
    expect(ncclCommGetAsyncError(comm_, &state), "asking for errors");
    expect(state, "what is under way");
  }

 private:
  void expect(ncclResult_t result, const char* what) const {
    check(result == ncclSuccess || result == ncclInProgress, "NCCL: ", what, " on ", name_, ": ",
          ncclGetErrorString(result), " (", ncclGetLastError(comm_),
          "); NCCL_DEBUG=INFO tells more");
  }

  std::string name_;
  int rank_;
  int ranks_;
  streams::OwnStream queue_;
  streams::Event behind_{};
  ncclComm_t comm_ = nullptr;
};

}  // namespace

bool has_nccl() {
  return true;
}

std::unique_ptr<Transport> make_nccl_transport(Communicator& communicator) {
  return std::make_unique<NcclTransport>(communicator);
}

std::string nccl_name() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "NCCL";
  return text("NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

#else

bool has_nccl() {
  return false;
}

std::unique_ptr<Transport> make_nccl_transport(Communicator& communicator) {
  throw Error(text("this installation was built without NCCL, which ", communicator.name(),
                   " asks for; configure with -DTRIREME_NCCL=ON or say [parallel] transport = "
                   "\"mpi\""));
}

std::string nccl_name() {
  return "";
}

#endif

}  // namespace trireme::grid
