#pragma once

#include <trireme/architecture/placement.hpp>
#include <trireme/model/pipeline_stage.hpp>
#include <trireme/model/shared_vocabulary.hpp>

#include <memory>
#include <vector>

namespace trireme::model {

/// The stages of one rank with their memory: scratch, and as many slots of saved activations as the
/// schedule needs at a time. Every slot can serve every stage of the rank.
template <class P>
class RankModel {
 public:
  using T = typename P::Compute;
  using BlockDone = typename PipelineStage<P>::BlockDone;
  using Between = typename PipelineStage<P>::Between;

  struct Shape {
    std::int64_t micro = 1;  ///< number of samples per pass
    int slots = 1;
    bool training = true;         ///< false: no gradient memory
    bool split_backward = false;  ///< backward_input and backward_weight are separate
    Recompute recompute = Recompute::none;
    bool offload = false;  ///< saved activations of layers are in host memory
    /// Tensors that layers keep, by kind of layer; empty: set by `recompute`.
    std::vector<architecture::Kept> kept = {};
    /// Number of elements of a block of logits.
    std::int64_t logit_elements = architecture::host_logit_elements;
    const Fp8Scaling* fp8 = nullptr;  ///< null: no fp8; must outlive the RankModel
    architecture::HeadGradient head = architecture::HeadGradient::with_losses;
    kernels::KernelChoice kernels = {};  ///< choice of the handle that passes use
    int logits_slots = 0;                ///< number of slots of a shared vocabulary's logits
    /// Access to the arrays of the first and of the second parameters; null if no replicas divide
    /// them. Must outlive the RankModel.
    ArrayAccess* access = nullptr;
    ArrayAccess* second_access = nullptr;
  };

  /// `parameters` holds the rank's shard. `axis`: tensor axis for the tokens of a micro-batch.
  /// `second`: parameters of passes with MicroContext::version 1, or null. Arguments except `shape`
  /// must outlive this object.
  RankModel(const architecture::Architecture& architecture, const Parameters<P>& parameters,
            const TensorAxis& axis, const Shape& shape, const Parameters<P>* second = nullptr);

  const architecture::TrainingObjective& objective() const { return objective_; }
  /// A field of a slot, by index in the objective; empty unless the stage reads the field.
  View1<std::int32_t> field(Stage stage, int slot, std::size_t number) const {
    return at(stage, slot).fields.at(number);
  }
  /// Input that a stage receives from the previous stage, and output for the next stage.
  StageRows<T> input(const Handle& handle, Stage stage, int slot) const;
  StageRows<T> output(Stage stage, int slot) const;
  /// Gradient: before the backward pass of the stage's output, afterwards of its input.
  StageRows<T> dx(Stage stage, int slot) const;
  /// For a shared vocabulary, on the rank of the last stage: the input [R, D] of the logits, which
  /// the caller later replaces by its gradient.
  View2<T> head_output(int slot) const {
    const Stage last = shard_.last_stage();
    return get(last).head_output(at(last, slot));
  }
  /// This rank's part of a shared vocabulary.
  const SharedVocabulary<P>& vocabulary() const { return *vocabulary_; }
  const typename SharedVocabulary<P>::Slot& logits_slot(int slot) const {
    return logits_slots_.at(static_cast<std::size_t>(slot));
  }
  /// Sums of the objective's losses (TrainingObjective::loss_sums()) since zero_losses().
  View1<double> losses() const { return scratch_.losses; }

  /// A result of the head's last pass on a rank that holds the last stage; for tests.
  template <class U>
  View2<U> head_tensor(int slot, std::string_view name) const {
    const Stage last = shard_.last_stage();
    return get(last).template head_tensor<U>(at(last, slot), name);
  }

  void zero_losses(const Handle& handle) const;

  void forward(const Handle& handle, Stage stage, int slot, const MicroContext& context,
               const Between& between = {}) const;
  /// Forward pass without dropout; the last stage adds only the losses of the first `samples`
  /// samples.
  void evaluate(const Handle& handle, Stage stage, int slot, const MicroContext& context,
                std::int64_t samples, const Between& between = {}) const;
  void backward(const Handle& handle, Stage stage, int slot, const MicroContext& context,
                const BlockDone& done) const;
  void backward_input(const Handle& handle, Stage stage, int slot, const MicroContext& context,
                      const Between& between = {}) const;
  void backward_weight(const Handle& handle, Stage stage, int slot, const MicroContext& context,
                       const BlockDone& done) const;

  const architecture::RankSizes& sizes() const { return sizes_; }
  std::int64_t saved_bytes() const { return saved_memory_.capacity(); }
  /// Bytes in host memory; 0 without offload.
  std::int64_t offloaded_bytes() const { return offloaded_ ? offloaded_->host_bytes() : 0; }
  std::int64_t scratch_bytes() const { return scratch_memory_.capacity(); }

 private:
  using Slot = typename PipelineStage<P>::Slot;

  std::size_t index(Stage stage) const;
  const Slot& at(Stage stage, int slot) const {
    return slots_[index(stage)].at(static_cast<std::size_t>(slot));
  }
  const PipelineStage<P>& get(Stage stage, int version = 0) const {
    return (version == 0 ? stages_ : second_stages_).at(index(stage));
  }
  void take_saved(Arena& arena);
  void take_windows(Arena& arena);
  void offload();
  /// Number of layers of the rank's stage with the most layers.
  std::int64_t most_layers() const;
  void take_scratch(Arena& arena);

  deck::ModelConfig model_;
  architecture::TrainingObjective objective_;
  architecture::Shard shard_;
  Shape shape_;
  architecture::RankSizes sizes_;
  std::vector<BlockPlan> plans_;  ///< by kind of block; stages refer to them
  BlockPlan head_plan_;
  std::vector<PipelineStage<P>> stages_;
  /// Stages with the second parameters, which use the same memory as stages_.
  std::vector<PipelineStage<P>> second_stages_;
  std::optional<SharedVocabulary<P>> vocabulary_;

  Arena saved_memory_;
  Arena scratch_memory_;
  std::vector<std::vector<Slot>> slots_;  ///< per stage of the rank
  std::vector<typename SharedVocabulary<P>::Slot> logits_slots_;
  typename PipelineStage<P>::Windows windows_;
  OffloadedLayers::Sizes window_sizes_;
  std::unique_ptr<OffloadedLayers> offloaded_;
  typename PipelineStage<P>::Scratch scratch_;
  View2<T> output_;                       // [R, D]
  View2<T> dx_;                           // [R, D]
  std::byte* value_gradients_ = nullptr;  ///< null without values of the model
};

}  // namespace trireme::model
