#pragma once

#include <trireme/model/parameters.hpp>
#include <trireme/optim/optimizer.hpp>
#include <trireme/train/server_messages.hpp>

#include <cstdint>
#include <vector>

namespace trireme::train {

/// A worker's messages with parameter servers: it fetches the weights of each step, and sends its
/// gradients bucket by bucket during the backward pass.
template <class P>
class ServerLink {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  /// Arguments must outlive this. Collective.
  ServerLink(const deck::ParallelConfig& parallel, grid::Grid& grid,
             model::Parameters<P>& parameters, const optim::Optimizer<P>& optimizer);

  /// Asks for the weights of step `step`, and waits for them. They come with the servers'
  /// optimizer status, which holds the loss scale.
  void fetch(const Exec& exec, std::int64_t step);
  /// Waits for the newest weights. Collective with ServerWorker::send_current.
  void fetch_current(const Exec& exec);

  /// Sends the gradients of a bucket, which must not change before finish().
  void push(const Exec& exec, std::size_t bucket);
  /// All gradients of a step are on their way. `last`: no other step follows before the servers
  /// have applied them.
  void end_step(std::int64_t step, bool last);
  /// Waits until the servers have the gradients.
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
