#pragma once

#include <trireme/optim/optimizer.hpp>
#include <trireme/optim/outer_exchange.hpp>
#include <trireme/optim/weight_gather.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace trireme::optim {

/// Prefix of the names of a checkpoint's arrays that hold the mean difference in flight.
inline const std::string outer_difference = "optimizer.outer_difference.";

/// Local training on a rank ([local]): the weights that all workers share, the outer optimizer of
/// these weights, and the workers that the rank trains in turn. One worker is selected: its
/// weights, optimizer state and progress are in the memory of `parameters` and `optimizer`. Other
/// workers are parked in separate memory. Douillard et al. 2023, "DiLoCo", arXiv 2311.08105.
template <class P>
class LocalTraining {
 public:
  using T = typename P::Compute;
  using Master = typename P::Master;

  /// `across`: the ranks at the same position in all groups of ranks that train different workers.
  /// `gather` may be null. Arguments must outlive this object.
  LocalTraining(const deck::Config& config, const architecture::Architecture& architecture,
                model::Parameters<P>& parameters, Optimizer<P>& optimizer,
                grid::Communicator& across, WeightGather<T>* gather);

  /// Number of all workers, number of this rank's workers, and the first of this rank's workers.
  std::int64_t workers() const { return config_.parallel.workers; }
  std::int64_t workers_here() const { return config_.parallel.workers_per_rank(); }
  std::int64_t first_worker() const { return across_.rank() * workers_here(); }
  grid::Communicator& across() { return across_; }
  const architecture::OuterSteps& schedule() const { return schedule_; }

  /// Sets the shared weights and this rank's workers to the values of the selected worker, and the
  /// outer optimizer's state to zero. Discards differences in flight. Selects the first worker.
  void begin(const Exec& exec);
  /// Selects worker first_worker() + `here`. Collective among the worker's replicas.
  void select(const Exec& exec, std::int64_t here);
  /// Sends differences and takes outer steps that are due after step `step`. Collective.
  void after_step(const Exec& exec, std::int64_t step);
  /// Swaps the selected worker's weights with the shared weights. Collective among its replicas.
  void exchange_with_outer(const Exec& exec);
  /// The memory in which worker first_worker() + `here` stores the values that the selected worker
  /// stores in `live`, a part of the weights or of the optimizer's state.
  template <class N>
  View1<N> of_worker(std::int64_t here, View1<N> live) const {
    return View1<N>(reinterpret_cast<N*>(moved(here, reinterpret_cast<std::byte*>(live.data()))),
                    live.extent(0));
  }
  View1<double> status_of(std::int64_t here) const;

  /// The weights after the last outer step, for a block of the optimizer's state, and the outer
  /// optimizer's momentum, whose data are an empty view if it has no momentum.
  using Block = typename Optimizer<P>::State;
  NamedTensor<Master> outer_weights(const Block& block) const;
  NamedTensor<Master> outer_momentum(const Block& block) const;
  /// If a mean difference is in flight after step `step`, completes its messages and calls
  /// use(means). `means` maps Block::first of each block of the fragment to the block's part of the
  /// mean, in the type of messages. Collective.
  template <class Use>
  void use_means(const Exec& exec, std::int64_t step, const Use& use);
  /// If schedule() has a mean difference in flight after step `step`, calls use(means) (see
  /// use_means()), which must fill the means from a checkpoint.
  template <class Use>
  void load_means(std::int64_t step, const Use& use);

  Bytes device_bytes() const;
  Bytes host_bytes() const;  ///< 0 unless the optimizer's state is in host memory

 private:
  /// A block of a fragment.
  struct Piece {
    std::size_t block = 0;  ///< index in blocks_
    std::int64_t at = 0;    ///< position of the block's first element in the fragment
  };
  struct Parked {
    View1<T> weights;
    View1<Master> state;
    View1<double> status;
  };

  /// Views of the mean of a whole fragment in the memory of `exchange`, by Block::first.
  template <class D>
  std::map<std::int64_t, NamedTensor<D>> means(const OuterExchange<D>& exchange,
                                               int fragment) const;
  std::byte* moved(std::int64_t here, std::byte* live) const;
  View1<T> live_weights() const;
  void refresh(const Exec& exec);
  template <class D>
  void send(OuterExchange<D>& exchange, const Exec& exec, int fragment, std::int64_t first,
            std::int64_t n);
  template <class D>
  void update(OuterExchange<D>& exchange, const Exec& exec, int fragment, std::int64_t first);
  /// Calls use(block, first element in the block, first element in the range, number of elements)
  /// for each piece of the elements [first, first + n) of a fragment.
  template <class Use>
  void for_pieces(int fragment, std::int64_t first, std::int64_t n, const Use& use) const;

  const deck::Config& config_;
  model::Parameters<P>& parameters_;
  Optimizer<P>& optimizer_;
  grid::Communicator& across_;
  WeightGather<T>* gather_;
  architecture::OuterSteps schedule_;
  std::vector<Block> blocks_;
  std::vector<std::vector<Piece>> fragments_;
  std::vector<std::int64_t> sizes_;  ///< number of this rank's elements of each fragment
  Arena state_;             ///< shared weights, their momentum, and parked optimizer states
  Arena parked_memory_;     ///< parked weights and progress
  View1<Master> outer_;     // [state elements]
  View1<Master> momentum_;  // [state elements], or empty
  std::vector<Parked> parked_;
  std::vector<std::ptrdiff_t> place_;  ///< index in parked_ of each worker; −1: selected
  std::vector<bool> stale_;            ///< by worker: refresh() is due after an outer step
  using Same = std::unique_ptr<OuterExchange<Master>>;
  using Narrow = std::unique_ptr<OuterExchange<Bf16>>;
  std::variant<Same, Narrow> exchange_;
};

template <class P>
template <class Use>
void LocalTraining<P>::for_pieces(int fragment, std::int64_t first, std::int64_t n,
                                  const Use& use) const {
  for (const Piece& piece : fragments_[static_cast<std::size_t>(fragment)]) {
    const Block& block = blocks_[piece.block];
    const std::int64_t begin = std::max(first, piece.at);
    const std::int64_t end = std::min(first + n, piece.at + block.updated.elements());
    if (begin < end) use(block, begin - piece.at, begin - first, end - begin);
  }
}

template <class P>
template <class D>
auto LocalTraining<P>::means(const OuterExchange<D>& exchange, int fragment) const
    -> std::map<std::int64_t, NamedTensor<D>> {
  std::map<std::int64_t, NamedTensor<D>> means;
  for (const Piece& piece : fragments_[static_cast<std::size_t>(fragment)]) {
    const NamedTensor<Master>& weights = blocks_[piece.block].updated;
    means[blocks_[piece.block].first] = {
        outer_difference + weights.name, weights.shape, weights.offset, weights.extent,
        View1<D>(exchange.mean().data() + piece.at, weights.data.extent(0))};
  }
  return means;
}

template <class P>
template <class Use>
void LocalTraining<P>::use_means(const Exec& exec, std::int64_t step, const Use& use) {
  const auto fragment = schedule_.in_flight(step);
  std::visit(
      [&](auto& exchange) {
        if (!exchange->in_flight()) return;
        exchange->finish(exec);
        use(means(*exchange, *fragment));
      },
      exchange_);
}

template <class P>
template <class Use>
void LocalTraining<P>::load_means(std::int64_t step, const Use& use) {
  const auto fragment = schedule_.in_flight(step);
  if (!fragment) return;
  std::visit(
      [&](auto& exchange) {
        exchange->resume(sizes_[static_cast<std::size_t>(*fragment)]);
        use(means(*exchange, *fragment));
      },
      exchange_);
}

}  // namespace trireme::optim
