#pragma once

#include <trireme/architecture/buckets.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/optim/optimizer.hpp>

#include <array>
#include <cstdint>
#include <vector>

namespace trireme::train {

/// Communicators of workers and servers, their positions on the data axis, and the buckets and
/// channels of their messages.
class ServerMessages {
 public:
  /// Buckets that begin before element `weights` of the arena hold weights; later buckets hold only
  /// gradients. Collective.
  ServerMessages(const deck::ParallelConfig& parallel, grid::Grid& grid,
                 std::vector<architecture::Bucket> buckets, std::int64_t weights);

  /// Message of a worker's first rank to the leader, the first rank of the first server.
  struct Announcement {
    /// 1: the worker is sending its gradients of the step; 0: it requests the weights of the step.
    std::int64_t pushes = 0;
    std::int64_t step = 0;
    std::int64_t last = 0;  ///< 1: no step begins before all updates of this step are applied
  };
  /// A ServerEvent from the leader to the other ranks of servers: 1 for an update, worker, step.
  using Told = std::array<std::int64_t, 3>;
  static constexpr int announcements = 0, told_events = 1;  ///< channels of `events`

  int workers() const { return workers_; }
  int servers() const { return servers_; }
  bool is_server() const { return data.rank() >= workers_; }
  int number() const { return is_server() ? data.rank() - workers_ : data.rank(); }
  bool is_first() const { return first_; }  ///< first rank of its worker or server
  bool is_leader() const { return first_ && data.rank() == workers_; }
  /// Position of a server on the data axis, and world rank of the first rank at a position.
  int server_place(int server) const { return workers_ + server; }
  int first_rank_of(int place) const { return first_ranks_[static_cast<std::size_t>(place)]; }
  /// World ranks of all servers' ranks except the leader.
  const std::vector<int>& server_ranks() const { return server_ranks_; }

  const std::vector<architecture::Bucket>& buckets() const { return buckets_; }
  bool has_weights(std::size_t bucket) const { return buckets_[bucket].begin < weights_; }
  int weight_channel(std::size_t bucket) const { return 1 + static_cast<int>(bucket); }
  int gradient_channel(std::size_t bucket) const {
    return 1 + static_cast<int>(buckets_.size() + bucket);
  }
  static constexpr int status_channel = 0;

  grid::Communicator& data;    ///< ranks of workers and servers that hold the same arrays
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

/// A worker's messages with parameter servers: weights before each step, and gradients bucket by
/// bucket during the backward pass.
template <class P>
class ServerLink {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  /// Arguments must outlive this object. Collective.
  ServerLink(const deck::ParallelConfig& parallel, grid::Grid& grid,
             model::Parameters<P>& parameters, const optim::Optimizer<P>& optimizer);

  /// Requests the weights of step `step`, and waits for them and for the optimizer's status.
  void fetch(const Exec& exec, std::int64_t step);
  /// Waits for the newest weights and optimizer status. Collective with ServerEngine::evaluate.
  void fetch_current(const Exec& exec);
  /// Receives the servers' optimizer status. Collective with ServerEngine::result.
  void fetch_status(const Exec& exec);
  /// Broadcasts the first worker's `value` to the other workers and the servers. Collective.
  void broadcast(double& value, const char* what);

  /// Starts sending the gradients of a bucket. The gradients must not change before finish().
  void push(const Exec& exec, std::size_t bucket);
  /// Announces that all gradients of a step are being sent. `last`: no further step begins before
  /// the servers have applied the gradients; in this case, waits like finish().
  void end_step(std::int64_t step, bool last);
  /// Waits until all sends of gradients are complete, so that the gradients may change.
  void finish();

  const ServerMessages& messages() const { return messages_; }
  grid::Communicator& data() const { return messages_.data; }

 private:
  void announce(const ServerMessages::Announcement& announcement);
  void receive(const Exec& exec);

  ServerMessages messages_;
  model::Parameters<P>& parameters_;
  const optim::Optimizer<P>& optimizer_;
  std::vector<grid::Request> arriving_;
  std::vector<grid::Request> sent_;
};

extern template class ServerLink<model::Fp32>;
extern template class ServerLink<model::Fp64>;
extern template class ServerLink<model::MixedBf16>;
extern template class ServerLink<model::MixedFp16>;

}  // namespace trireme::train
