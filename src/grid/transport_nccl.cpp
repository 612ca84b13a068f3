// The transport that uses NCCL: one stream per communicator, on which NCCL moves bytes and kernels
// sum values. Events order the stream with the kernels of Exec.
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/grid/nccl_library.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/grid/transport.hpp>
#include <trireme/tensor/streams.hpp>

#include <string>

namespace trireme::grid {

#if defined(TRIREME_HAS_NCCL)
namespace {

class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(Communicator& communicator)
      : nccl_(nccl_library()),
        name_(communicator.name()),
        rank_(communicator.rank()),
        ranks_(communicator.size()),
        queue_(true) {
    ncclUniqueId id{};
    if (rank_ == 0) expect(nccl_.get_unique_id(&id), "getting an id");
    const std::string bits = communicator.broadcast(std::string(id.internal, sizeof(id.internal)),
                                                    0, "the id of an NCCL communicator");
    bits.copy(id.internal, sizeof(id.internal));
    expect(nccl_.comm_init_rank(&comm_, ranks_, id, rank_), "making a communicator");
  }

  ~NcclTransport() override {
    queue_.exec().fence();
    (void)nccl_.comm_destroy(comm_);
  }

  void begin_behind(const Exec& exec) override {
    behind_.record(exec);
    wait(queue_.exec(), behind_);
  }

  void exchange(std::span<const Transfer> group) override {
    in_group("exchanging", [&] {
      for (const Transfer& t : group) {
        const auto bytes = static_cast<std::size_t>(t.bytes);
        if (t.sends)
          expect(nccl_.send(t.data, bytes, ncclUint8, t.peer, comm_, queue_.stream()), "sending");
        else
          expect(nccl_.receive(t.data, bytes, ncclUint8, t.peer, comm_, queue_.stream()),
                 "receiving");
      }
    });
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
      expect(nccl_.all_gather(part(rank_), all, static_cast<std::size_t>(length(0)), ncclUint8,
                              comm_, queue_.stream()),
             "all-gather");
      return;
    }
    in_group("all-gather of uneven parts", [&] {
      for (int r = 0; r < ranks_; ++r)
        if (length(r) > 0) broadcast(part(r), length(r), r);
    });
  }

  void broadcast(std::byte* data, Bytes bytes, int root) override {
    expect(nccl_.broadcast(data, data, static_cast<std::size_t>(bytes), ncclUint8, root, comm_,
                           queue_.stream()),
           "broadcast");
  }

  void run(void (*launch)(const Summands&, const Exec&), const Summands& summands) override {
    launch(summands, queue_.exec());
  }

  void record(Place& place) override {
    if (!place.event) place.event = std::make_unique<Event>();
    place.event->record(queue_.exec());
  }
  bool continue_behind(const Exec& exec, const Place& place) override {
    wait(exec, *place.event);
    return true;
  }
  bool passed(const Place& place) override { return place.event->done(); }

  void progress() override {
    ncclResult_t state = ncclSuccess;
    expect(nccl_.comm_get_async_error(comm_, &state), "asking for errors");
    expect(state, "an outstanding operation");
  }

 private:
  /// Runs `calls` in one group of NCCL. The group ends even if one of the calls fails: an open
  /// group would hold back all later calls.
  template <class Calls>
  void in_group(const char* what, const Calls& calls) {
    expect(nccl_.group_start(), "beginning a group");
    try {
      calls();
    } catch (...) {
      (void)nccl_.group_end();
      throw;
    }
    expect(nccl_.group_end(), what);
  }

  void expect(ncclResult_t result, const char* what) const {
    check(result == ncclSuccess || result == ncclInProgress, nccl_.name, ": ", what, " on ", name_,
          ": ", nccl_.get_error_string(result), " (", nccl_.get_last_error(comm_),
          "); set NCCL_DEBUG=INFO for details");
  }

  const NcclLibrary& nccl_;
  std::string name_;
  int rank_;
  int ranks_;
  streams::OwnStream queue_;
  Event behind_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

void load_nccl(Runtime& runtime) {
  if (runtime.ranks() > 1) runtime.together([] { nccl_library(); });
}

std::unique_ptr<Transport> make_nccl_transport(Communicator& communicator) {
  return std::make_unique<NcclTransport>(communicator);
}

std::string nccl_name() {
  const NcclLibrary* nccl = loaded_nccl_library();
  return nccl != nullptr ? text(nccl->name, " (", nccl->path, ")") : std::string();
}

#else

void load_nccl(Runtime&) {}

std::unique_ptr<Transport> make_nccl_transport(Communicator& communicator) {
  throw Error(text("this installation was built without NCCL, which communicator ",
                   communicator.name(),
                   " needs; configure with -DTRIREME_NCCL=ON or set "
                   "[parallel] transport = \"mpi\""));
}

std::string nccl_name() {
  return "";
}

#endif

}  // namespace trireme::grid
