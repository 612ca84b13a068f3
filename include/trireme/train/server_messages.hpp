#pragma once

#include <trireme/architecture/buckets.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/runtime.hpp>

#include <array>
#include <cstdint>
#include <vector>

namespace trireme::train {

/// Communicators between workers and servers, and the numbers of their messages.
class ServerMessages {
 public:
  /// Buckets before element `weights` of the arena hold weights, the others gradients only.
  /// Collective.
  ServerMessages(const deck::ParallelConfig& parallel, grid::Grid& grid,
                 std::vector<architecture::Bucket> buckets, std::int64_t weights);

  /// Message of a worker's first rank to the leader, the first rank of the first server.
  struct Announcement {
    std::int64_t pushes = 0;  ///< 1: its gradients of the step are on their way; 0: it asks for
                              ///< the weights of the step
    std::int64_t step = 0;
    std::int64_t last = 0;  ///< 1: it does not begin another step before the servers are done
  };
  /// A ServerEvent, which the leader tells the other servers' ranks.
  using Told = std::array<std::int64_t, 3>;
  static constexpr int announcements = 0, told_events = 1;  ///< channels of `events`

  int workers() const { return workers_; }
  int servers() const { return servers_; }
  bool is_server() const { return data.rank() >= workers_; }
  int number() const { return is_server() ? data.rank() - workers_ : data.rank(); }
  bool is_first() const { return first_; }  ///< rank of its worker or server
  bool is_leader() const { return first_ && data.rank() == workers_; }
  /// Places on the data axis, and in the whole job those of the first ranks.
  int server_place(int server) const { return workers_ + server; }
  int first_rank_of(int place) const { return first_ranks_[static_cast<std::size_t>(place)]; }
  const std::vector<int>& server_ranks() const { return server_ranks_; }  ///< but the leader

  const std::vector<architecture::Bucket>& buckets() const { return buckets_; }
  bool has_weights(std::size_t bucket) const { return buckets_[bucket].begin < weights_; }
  int weight_channel(std::size_t bucket) const { return 1 + static_cast<int>(bucket); }
  int gradient_channel(std::size_t bucket) const {
    return 1 + static_cast<int>(buckets_.size() + bucket);
  }
  static constexpr int status_channel = 0;

  grid::Communicator& data;    ///< workers and servers with the same arrays
  grid::Communicator& events;  ///< all ranks

 private:
  int workers_;
  int servers_;
  bool first_;
  std::vector<int> first_ranks_;
  std::vector<int> server_ranks_;
  std::vector<architecture::Bucket> buckets_;
  std::int64_t weights_;
};

}  // namespace trireme::train
