#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/model/rank_model.hpp>
#include <trireme/optim/gradient_reducer.hpp>
#include <trireme/optim/optimizer.hpp>
#include <trireme/optim/shared_gradients.hpp>
#include <trireme/optim/weight_gather.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/train/transfers.hpp>

#include <optional>
#include <span>

namespace trireme::train {

/// Dynamic with fp16 only: the other types have the range of a float.
kernels::LossScaling loss_scaling(const deck::PrecisionConfig& precision);
/// Loss scale of a run's first step.
double initial_loss_scale(const deck::PrecisionConfig& precision);

/// Parts of a rank: its shard of the model with all memory, and its communicators.
template <class P>
struct RankParts {
  using T = typename P::Compute;

  /// The memory suffices for all `programs` of the training steps. Without programs the rank only
  /// evaluates, and has neither gradients nor an optimizer. Arguments must outlive this.
  RankParts(const deck::Config& config, const architecture::Architecture& architecture,
            grid::Grid& grid, const plan::Machine& machine, const kernels::KernelChoice& choice,
            std::span<const schedule::Program> programs);
  RankParts(const RankParts&) = delete;
  RankParts& operator=(const RankParts&) = delete;

  void make_optimizer(const deck::Config& config, const architecture::Architecture& architecture,
                      grid::Grid& grid, const plan::Machine& machine);

  /// Device bytes for sums between ranks on a transport.
  Bytes reduction_bytes() const {
    return replicas.scratch_bytes() + context.scratch_bytes() + tensor.scratch_bytes() +
           embedding.scratch_bytes();
  }

  grid::Communicator& data;      ///< ranks that divide the samples
  grid::Communicator& context;   ///< ranks that divide the tokens of each sample
  grid::Communicator& replicas;  ///< ranks with the same weights: data and context together
  grid::Communicator& pipeline;
  grid::Communicator& tensor;
  grid::Communicator& replica;    ///< ranks that together hold one copy of the model
  grid::Communicator& embedding;  ///< ranks of the first and last stage
  model::TensorAxis axis;
  model::Parameters<P> parameters;
  schedule::ProgramLayout layout;  ///< of steps with the full batch
  int slots = 1;
  std::optional<model::Fp8Scaling> fp8;  ///< with products in fp8
  std::optional<model::RankModel<P>> model;
  std::optional<Transfers<T>> transfers;
  std::optional<optim::Optimizer<P>> optimizer;
  std::optional<optim::SharedGradients<P>> shared_gradients;
  std::optional<optim::GradientReducer<typename P::Gradient>> reducer;
  std::optional<optim::WeightGather<T>> weight_gather;  ///< of the distributed optimizer
};

extern template struct RankParts<model::Fp32>;
extern template struct RankParts<model::Fp64>;
extern template struct RankParts<model::MixedBf16>;
extern template struct RankParts<model::MixedFp16>;

}  // namespace trireme::train
