#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/model/rank_model.hpp>
#include <trireme/optim/gradient_reducer.hpp>
#include <trireme/optim/optimizer.hpp>
#include <trireme/optim/shared_gradients.hpp>
#include <trireme/optim/weight_gather.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/train/transfers.hpp>

#include <optional>

namespace trireme::train {

/// What a rank works with: its shard of the model with all memory, and its place in each group.
template <class P>
struct RankParts {
  using T = typename P::Compute;

  /// `program` of a training step; null: for evaluation, with neither gradients nor optimizer.
  /// Arguments must outlive this.
  RankParts(const deck::Config& config, const architecture::Architecture& architecture,
            grid::Grid& grid, const schedule::Program* program);
  RankParts(const RankParts&) = delete;
  RankParts& operator=(const RankParts&) = delete;

  void make_optimizer(const deck::Config& config, const architecture::Architecture& architecture,
                      grid::Grid& grid);

  grid::Communicator& data;
  grid::Communicator& pipeline;
  grid::Communicator& tensor;
  grid::Communicator& embedding;  ///< first and last stage
  model::TensorAxis axis;
  model::Parameters<P> parameters;
  schedule::ProgramLayout layout;
  int slots = 1;
  std::optional<model::RankModel<P>> model;
  std::optional<Transfers<T>> transfers;
  std::optional<optim::Optimizer<P>> optimizer;
  std::optional<optim::SharedGradients<P>> shared_gradients;
  std::optional<optim::GradientReducer<typename P::Gradient>> reducer;
  std::optional<optim::WeightGather<T>> weight_gather;  ///< of the distributed optimizer
};

extern template struct RankParts<model::Fp32>;
extern template struct RankParts<model::Fp64>;

}  // namespace trireme::train
