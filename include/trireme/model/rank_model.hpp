#pragma once

#include <trireme/architecture/placement.hpp>
#include <trireme/model/pipeline_stage.hpp>
#include <trireme/model/shared_vocabulary.hpp>

#include <memory>
#include <vector>

namespace trireme::model {

/// The stages of one rank with their memory: scratch, and as many slots of saved activations as the
/// program needs at a time. Every slot can serve every stage of the rank.
template <class P>
class RankModel {
 public:
  using T = typename P::Compute;
  using LayerDone = typename PipelineStage<P>::LayerDone;
  using Between = typename PipelineStage<P>::Between;

  struct Shape {
    std::int64_t micro = 1;  ///< samples per pass
    int slots = 1;
    bool training = true;         ///< false: no gradient memory
    bool split_backward = false;  ///< backward_input and backward_weight are separate
    Recompute recompute = Recompute::none;
    bool offload = false;  ///< saved activations of layers are in host memory
    /// Tensors that layers keep, by kind of layer; empty: set by `recompute`.
    std::vector<architecture::Kept> kept = {};
    std::int64_t logit_elements = architecture::host_logit_elements;  ///< logits computed at a time
    const Fp8Scaling* fp8 = nullptr;  ///< scales of products in fp8, or null; must outlive this
    architecture::HeadGradient head = architecture::HeadGradient::with_losses;
    kernels::KernelChoice kernels = {};    ///< choice of the handle for the passes
    int logits_slots = 0;                  ///< slots of a shared vocabulary's logits
    ArrayAccess* access = nullptr;         ///< access to divided arrays; must outlive this
    ArrayAccess* second_access = nullptr;  ///< access to the second parameters; as `access`
  };

  /// `parameters` holds the rank's shard. `axis`, for the micro-batch's tokens, must outlive this
  /// object. `second`: parameters of passes with the other version of the weights, or null.
  RankModel(const architecture::Architecture& architecture, const Parameters<P>& parameters,
            const TensorAxis& axis, const Shape& shape, const Parameters<P>* second = nullptr);

  const architecture::TrainingObjective& objective() const { return objective_; }
  /// A field of the micro-batch in a slot, by its index in the objective; empty unless the stage
  /// reads it.
  View1<std::int32_t> field(Stage stage, int slot, std::size_t number) const {
    return at(stage, slot).fields.at(number);
  }
  /// Input [R, D] that a stage receives from the previous stage, and output for the next stage.
  View2<T> input(const Handle& handle, Stage stage, int slot) const;
  View2<T> output() const { return output_; }
  /// Gradient [R, D] of the stage's output before its backward pass, of its input afterwards.
  View2<T> dx(Stage stage, int slot) const;
  /// Input of the logits [R, D], then its gradient, in the last stage. For a shared vocabulary.
  View2<T> head_output(int slot) const {
    const Stage last = shard_.last_stage();
    return get(last).head_output(at(last, slot));
  }
  /// This rank's part of a shared vocabulary.
  const SharedVocabulary<P>& vocabulary() const { return *vocabulary_; }
  const typename SharedVocabulary<P>::Slot& logits_slot(int slot) const {
    return logits_slots_.at(static_cast<std::size_t>(slot));
  }
  /// Σ cross entropy of each term of the objective [terms].
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
  /// Adds the losses of the first `samples` samples, without dropout.
  void evaluate(const Handle& handle, Stage stage, int slot, const MicroContext& context,
                std::int64_t samples, const Between& between = {}) const;
  void backward(const Handle& handle, Stage stage, int slot, const MicroContext& context,
                const LayerDone& done) const;
  void backward_input(const Handle& handle, Stage stage, int slot, const MicroContext& context,
                      const Between& between = {}) const;
  void backward_weight(const Handle& handle, Stage stage, int slot, const MicroContext& context,
                       const LayerDone& done) const;

  const architecture::LocalSizes& sizes() const { return sizes_; }
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
  /// Layers of the stage with the most layers.
  std::int64_t most_layers() const;
  void take_scratch(Arena& arena);

  deck::ModelConfig model_;
  architecture::TrainingObjective objective_;
  architecture::Shard shard_;
  Shape shape_;
  architecture::LocalSizes sizes_;
  std::vector<LayerPlan> plans_;  ///< by kind of block; stages refer to them
  LayerPlan head_plan_;
  std::vector<PipelineStage<P>> stages_;
  std::vector<PipelineStage<P>> second_stages_;  ///< stages with second parameters, in equal memory
  std::optional<SharedVocabulary<P>> vocabulary_;

  Arena saved_memory_;
  Arena scratch_memory_;
  std::vector<std::vector<Slot>> slots_;  ///< per stage of the rank
  std::vector<typename SharedVocabulary<P>::Slot> logits_slots_;
  typename PipelineStage<P>::Windows windows_;
  OffloadedLayers::Sizes window_sizes_;
  std::unique_ptr<OffloadedLayers> offloaded_;
  typename PipelineStage<P>::Scratch scratch_;
  View2<T> output_;  // [R, D]
  View2<T> dx_;      // [R, D]
};

}  // namespace trireme::model
