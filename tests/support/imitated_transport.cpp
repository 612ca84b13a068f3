#include <support/imitated_transport.hpp>
#include <trireme/base/check.hpp>

#include <mpi.h>

#include <algorithm>
#include <deque>
#include <vector>

namespace trireme::testing {
namespace {

using grid::Summands;
using Transfer = grid::Transport::Transfer;

class ImitatedTransport final : public grid::Transport {
 public:
  ImitatedTransport(const grid::Communicator& communicator, bool as_stream)
      : rank_(communicator.rank()), ranks_(communicator.size()), as_stream_(as_stream) {
    std::vector<int> members;
    for (int r = 0; r < ranks_; ++r) members.push_back(communicator.world_rank(r));
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group mine = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, ranks_, members.data(), &mine);
    // Several disjoint ones at a time may have one tag; those of one rank follow each other.
    MPI_Comm_create_group(MPI_COMM_WORLD, mine, 0, &comm_);
    MPI_Group_free(&mine);
    MPI_Group_free(&all);
  }
  ~ImitatedTransport() override { MPI_Comm_free(&comm_); }

  void begin_behind(const Exec& exec) override { exec.fence(); }

  void exchange(std::span<const Transfer> group) override {
    put({{group.begin(), group.end()}, nullptr, {}});
  }

  void all_gather(std::byte* all, std::span<const Bytes> offsets) override {
    const auto part = [&](int r) {
      const auto i = static_cast<std::size_t>(r);
      return Transfer{all + offsets[i], offsets[i + 1] - offsets[i], r, false};
    };
    std::vector<Transfer> group;
    for (int r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      group.push_back(part(r));
      Transfer mine = part(rank_);
      mine.peer = r;
      mine.sends = true;
      group.push_back(mine);
    }
    std::erase_if(group, [](const Transfer& t) { return t.bytes == 0; });
    put({std::move(group), nullptr, {}});
  }

  void broadcast(std::byte* data, Bytes bytes, int root) override {
    std::vector<Transfer> group;
    if (rank_ != root) group.push_back({data, bytes, root, false});
    for (int r = 0; rank_ == root && r < ranks_; ++r)
      if (r != root) group.push_back({data, bytes, r, true});
    put({std::move(group), nullptr, {}});
  }

  void run(void (*launch)(const Summands&, const Exec&), const Summands& summands) override {
    put({{}, launch, summands});
  }

  void record(Place& place) override { place.number = put_; }
  bool continue_behind(const Exec&, const Place& place) override {
    progress();
    return as_stream_ || passed(place);
  }
  bool passed(const Place& place) override { return done_ >= place.number; }

  void progress() override {
    while (!entries_.empty()) {
      Entry& entry = entries_.front();
      if (!active_) start(entry);
      int all = 0;
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE);
      if (all == 0) return;
      if (entry.launch != nullptr) {
        entry.launch(entry.summands, Exec());
        Exec().fence();
      }
      entries_.pop_front();
      active_ = false;
      ++done_;
    }
  }

 private:
  struct Entry {
    std::vector<Transfer> group;
    void (*launch)(const Summands&, const Exec&) = nullptr;
    Summands summands;
  };

  void put(Entry entry) {
    entries_.push_back(std::move(entry));
    ++put_;
  }

  void start(const Entry& entry) {
    active_ = true;
    requests_.clear();
    for (const Transfer& t : entry.group) {
      check(t.peer != rank_ && t.bytes > 0, "imitated transport: a transfer of ", t.bytes,
            " bytes with rank ", t.peer);
      MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
      const auto bytes = static_cast<int>(t.bytes);
      if (t.sends)
        MPI_Issend(t.data, bytes, MPI_BYTE, t.peer, 0, comm_, &request);
      else
        MPI_Irecv(t.data, bytes, MPI_BYTE, t.peer, 0, comm_, &request);
    }
  }

  int rank_;
  int ranks_;
  bool as_stream_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::deque<Entry> entries_;
  std::vector<MPI_Request> requests_;
  bool active_ = false;
  std::int64_t put_ = 0;
  std::int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<grid::Transport> imitate_nccl(grid::Communicator& communicator) {
  return std::make_unique<ImitatedTransport>(communicator, false);
}

std::unique_ptr<grid::Transport> imitate_stream(grid::Communicator& communicator) {
  return std::make_unique<ImitatedTransport>(communicator, true);
}

}  // namespace trireme::testing
