#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/model/rank_model.hpp>
#include <trireme/optim/gradient_reducer.hpp>
#include <trireme/optim/local_training.hpp>
#include <trireme/optim/noise_scale.hpp>
#include <trireme/optim/optimizer.hpp>
#include <trireme/optim/shared_gradients.hpp>
#include <trireme/optim/weight_gather.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/train/server_link.hpp>
#include <trireme/train/transfers.hpp>

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace trireme::train {

/// Rule of the loss scale: constant unless the type is fp16 and loss_scale_interval is not 0.
kernels::LossScaling loss_scaling(const deck::PrecisionConfig& precision);
/// Loss scale of a run's first step.
double initial_loss_scale(const deck::PrecisionConfig& precision);

/// Memory and communicators for messages of a vocabulary that all pipeline ranks share.
template <class P>
struct RankVocabulary {
  using T = typename P::Compute;

  RankVocabulary(grid::Grid& grid, const architecture::RankSizes& sizes);

  std::array<grid::Communicator*, 4> communicators() const {
    return {inputs, outputs, logits, input_gradients};
  }

  grid::Communicator* inputs;   ///< sums of look-ups for the first stage
  grid::Communicator* outputs;  ///< broadcasts of the last stage's output
  /// All-gathers of the logits' statistics, and sums of the last stage's output gradient.
  grid::Communicator* logits;
  grid::Communicator* input_gradients;  ///< broadcasts of the gradient of the first stage's input
  Arena memory;
  /// Message buffers: schedule::shared_buffers for each kind except statistics.
  std::vector<View2<T>> slices;
  View1<double> statistics;  // [pipeline ranks · targets of a micro-batch · 3]
};

/// Access of a rank's passes to arrays that replicas divide.
template <class P>
class RankAccess final : public model::ArrayAccess {
 public:
  using Gather = optim::WeightGather<typename P::Compute>;
  using Reducer = optim::GradientReducer<typename P::Gradient>;

  /// Arguments must outlive this object; `gather` may be null.
  RankAccess(Gather* gather, Reducer& reducer) : gather_(gather), reducer_(reducer) {}

  void before_reads(const Exec& exec, std::int64_t block,
                    std::optional<std::int64_t> next) override {
    if (gather_ != nullptr) gather_->before_reads(exec, block, next);
  }
  void before_sums(const Exec& exec, std::int64_t block) override {
    reducer_.before_sums(exec, block);
  }

 private:
  Gather* gather_;
  Reducer& reducer_;
};

/// Parts of a rank's engine: the model's shard, the optimizer, their memory, and the communicators.
template <class P>
struct EngineParts {
  using T = typename P::Compute;

  /// The memory suffices for all `programs` of the training steps. Without programs the rank only
  /// evaluates, and has neither gradients nor an optimizer. Arguments must outlive this object.
  EngineParts(const deck::Config& config, const architecture::Architecture& architecture,
              grid::Grid& grid, const plan::Machine& machine, const kernels::KernelChoice& choice,
              std::span<const schedule::Program> programs);
  EngineParts(const EngineParts&) = delete;
  EngineParts& operator=(const EngineParts&) = delete;

  /// Index of the weights and gradients of a step: step mod 2 if steps overlap, otherwise 0.
  int version_of(std::int64_t step) const { return other_version ? static_cast<int>(step % 2) : 0; }
  model::Parameters<P>& parameters_of(std::int64_t step) {
    return version_of(step) == 0 ? parameters : other_version->parameters;
  }
  optim::SharedGradients<P>& shared_gradients_of(std::int64_t step) {
    return version_of(step) == 0 ? *shared_gradients : *other_version->shared_gradients;
  }
  optim::GradientReducer<typename P::Gradient>& reducer_of(std::int64_t step) {
    return version_of(step) == 0 ? *reducer : *other_version->reducer;
  }
  optim::WeightGather<T>& weight_gather_of(std::int64_t step) {
    return version_of(step) == 0 ? *weight_gather : *other_version->weight_gather;
  }
  /// Waits for all outstanding gathers of weights, of both versions.
  void finish_gathers() {
    if (weight_gather) weight_gather->finish();
    if (other_version && other_version->weight_gather) other_version->weight_gather->finish();
  }
  /// The optimizer, set to use the parameters of a step.
  optim::Optimizer<P>& optimizer_of(std::int64_t step) {
    optimizer->use(parameters_of(step));
    return *optimizer;
  }

  /// Copies the weights of step `step` to the other version, if steps overlap.
  void copy_second_weights(const Exec& exec, std::int64_t step);

  void make_vocabulary(const deck::Config& config, const architecture::Architecture& architecture,
                       grid::Grid& grid, const plan::Machine& machine);
  void make_optimizer(const deck::Config& config, const architecture::Architecture& architecture,
                      grid::Grid& grid, const plan::Machine& machine);

  /// Device bytes that transports use for sums between ranks.
  Bytes reduction_bytes() const {
    const Bytes shared =
        vocabulary ? vocabulary->inputs->scratch_bytes() + vocabulary->logits->scratch_bytes() : 0;
    const Bytes of_experts =
        experts != nullptr ? replica_groups.experts.scratch_bytes() + experts->scratch_bytes() : 0;
    return shared + replicas.scratch_bytes() + of_experts + context.scratch_bytes() +
           tensor.scratch_bytes() + embedding.scratch_bytes() + pipeline.scratch_bytes();
  }

  grid::Communicator& data;      ///< ranks that divide the samples
  grid::Communicator& context;   ///< ranks that divide the tokens of each sample
  grid::Communicator& replicas;  ///< ranks with the same weights: data and context together
  grid::Communicator& shards;    ///< replicas that divide state ([parallel] shard)
  grid::Communicator* experts;   ///< replicas that divide the experts; null: every replica has all
  /// `replicas` and `shards`, and those of their ranks that have the same experts as this rank.
  optim::BucketGroups replica_groups, shard_groups;
  grid::Communicator& pipeline;
  grid::Communicator& tensor;
  grid::Communicator& model_group;  ///< ranks that together hold one copy of the model
  grid::Communicator& embedding;    ///< pipeline ranks of the first and the last stage
  model::TensorAxis axis;
  model::Parameters<P> parameters;
  /// The second version of weights and gradients, if steps overlap.
  struct OtherVersion {
    OtherVersion(const architecture::Architecture& architecture, const architecture::Shard& shard)
        : parameters(architecture, shard, true) {}

    model::Parameters<P> parameters;
    std::optional<optim::SharedGradients<P>> shared_gradients;
    std::optional<optim::GradientReducer<typename P::Gradient>> reducer;
    std::optional<optim::WeightGather<T>> weight_gather;
    std::optional<RankAccess<P>> access;
  };
  std::optional<OtherVersion> other_version;
  schedule::ProgramLayout layout;        ///< layout of the program for the full batch
  int slots = 1;                         ///< number of slots for saved activations
  int logits_slots = 0;                  ///< number of slots for the logits of a shared vocabulary
  std::optional<model::Fp8Scaling> fp8;  ///< with products in fp8
  std::optional<model::RankModel<P>> model;
  std::optional<Transfers<T>> transfers;
  std::optional<RankVocabulary<P>> vocabulary;  ///< if pipeline ranks share the vocabulary
  std::optional<optim::Optimizer<P>> optimizer;
  std::optional<optim::SharedGradients<P>> shared_gradients;
  std::optional<optim::GradientReducer<typename P::Gradient>> reducer;
  std::optional<optim::NoiseScale<P>> noise;            ///< with run.gradient_noise_scale
  std::optional<optim::WeightGather<T>> weight_gather;  ///< if replicas divide the update
  std::optional<RankAccess<P>> access;                  ///< on a training rank
  std::optional<ServerLink<P>> servers;  ///< on a worker, if servers hold the optimizer's state
  std::optional<optim::LocalTraining<P>> local;  ///< on a training rank, with local training
};

extern template struct RankVocabulary<model::Fp32>;
extern template struct RankVocabulary<model::Fp64>;
extern template struct RankVocabulary<model::MixedBf16>;
extern template struct RankVocabulary<model::MixedFp16>;
extern template struct EngineParts<model::Fp32>;
extern template struct EngineParts<model::Fp64>;
extern template struct EngineParts<model::MixedBf16>;
extern template struct EngineParts<model::MixedFp16>;

}  // namespace trireme::train
