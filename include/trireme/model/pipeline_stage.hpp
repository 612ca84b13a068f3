#pragma once

#include <trireme/architecture/objective.hpp>
#include <trireme/model/block.hpp>
#include <trireme/model/offloaded_layers.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace trireme::model {

/// Called before passes use the arrays of a part of the model, which replicas may divide: its
/// weights may have to be gathered, and its gradients may reuse another layer's memory. `layer`:
/// see architecture::layer_of(). Asynchronous on exec.
class ArrayAccess {
 public:
  virtual ~ArrayAccess() = default;

  /// After this call, kernels may read the weights. `next`: the part that the pass reads next.
  virtual void before_reads(const Exec& exec, std::int64_t layer,
                            std::optional<std::int64_t> next) = 0;
  /// After this call, kernels may add to the gradients.
  virtual void before_sums(const Exec& exec, std::int64_t layer) = 0;
};

/// One pipeline stage: some layers, preceded by the embedding in the first stage and followed by
/// the head in the last stage. A stage may have no layers. The caller provides all memory.
template <class P>
class PipelineStage {
 public:
  using T = typename P::Compute;

  /// Memory kept from a micro-batch's forward pass to the end of its backward pass.
  struct Slot {
    std::vector<View1<std::int32_t>> fields;  // per field of the objective
    View2<T> x;                               // [R, D] input of a stage without layers and head
    std::vector<LayerMemory> layers;
    LayerMemory head;
    View2<T> dx;          // [R, D] in the first stage, if the backward pass is split
    SlotOffload offload;  ///< offload of `layers`
  };

  /// Memory that layers use in turn if saved activations are offloaded.
  using Windows = std::vector<LayerMemory>;

  /// Memory used within one pass.
  struct Scratch {
    View1<double> losses;  // [terms] Σ cross entropy of each term since zero_losses
    LayerScratch<P> layer;
  };

  struct SlotShape {
    bool training = true;         ///< false: layers share memory
    bool split_backward = false;  ///< backward_input and backward_weight are separate
  };

  /// Called when all weight gradients of a layer are complete in this pass (−1: the embedding, L:
  /// the head).
  using LayerDone = std::function<void(std::int64_t layer)>;
  /// Called between layers to progress messages in flight; may be empty.
  using Between = std::function<void()>;

  /// `plans`: one per kind of block except the head. `axis`, the plans and `access` must outlive
  /// this object. `access`: null if all arrays are whole.
  PipelineStage(const architecture::Architecture& architecture, std::span<const LayerPlan> plans,
                const LayerPlan& head, const Parameters<P>& parameters, const TensorAxis& axis,
                Stage number, ArrayAccess* access = nullptr);
  // Explicit, because moving views may throw in some Kokkos versions, and a vector of stages would
  // then copy them.
  PipelineStage(const PipelineStage&) = delete;
  PipelineStage& operator=(const PipelineStage&) = delete;
  PipelineStage(PipelineStage&&) = default;
  PipelineStage& operator=(PipelineStage&&) = default;

  /// `windows`, if not empty, are the layers' memory; SlotOffload::window assigns them to the
  /// layers of slot `number`.
  Slot take_slot(Arena& arena, const architecture::LocalSizes& sizes, const SlotShape& shape,
                 const Windows& windows = {}, int number = 0) const;

  /// Memory of the stage's input [R, D], to be filled by kernels on `handle` before a pass; the
  /// first stage reads tokens instead.
  View2<T> input(const Handle& handle, const Slot& slot) const;
  /// Takes the head's memory for use within one pass, if the stage has a head.
  void take_head_scratch(Arena& arena);
  /// Takes the layers' memory that keeps its values between passes.
  void take_lasting_memory(Arena& arena);
  /// Output [R, D] of the final norm, then its gradient, in the last stage.
  View2<T> head_output(const Slot& slot) const { return head_tensor<T>(slot, "y"); }
  /// A tensor of the head by name, after a pass of the last stage.
  template <class U>
  View2<U> head_tensor(const Slot& slot, std::string_view name) const {
    return head_->template tensor<U>(name, slot.head, head_scratch_);
  }
  std::int64_t layers() const { return static_cast<std::int64_t>(layers_.size()); }

  /// Computes output [R, D]; the last stage adds to scratch.losses instead.
  void forward(const Handle& handle, View2<T> output, const Slot& slot, const Scratch& scratch,
               const MicroContext& context, const Between& between) const;
  /// The forward pass without dropout and gradients; only the first `samples` samples count in the
  /// loss.
  void evaluate(const Handle& handle, View2<T> output, const Slot& slot, const Scratch& scratch,
                const MicroContext& context, std::int64_t samples, const Between& between) const;
  /// dx [R, D]: gradient of the output on entry (the last stage needs none), of the input on
  /// return.
  void backward(const Handle& handle, View2<T> dx, const Slot& slot, const Scratch& scratch,
                const MicroContext& context, const LayerDone& done) const;
  void backward_input(const Handle& handle, View2<T> dx, const Slot& slot, const Scratch& scratch,
                      const MicroContext& context, const Between& between) const;
  void backward_weight(const Handle& handle, const Slot& slot, const Scratch& scratch,
                       const MicroContext& context, const LayerDone& done) const;

 private:
  /// Calls `layer_done` after each layer.
  void forward_layers(const Handle& handle, View2<T> output, const Slot& slot,
                      const Scratch& scratch, const MicroContext& context,
                      const LayerDone& layer_done) const;
  void take_layers(Slot& slot, Arena& arena, const SlotShape& shape) const;
  View2<T> layer_output(const Slot& slot, std::size_t layer, View2<T> output) const;

  MicroContext with_fields(const MicroContext& context, const Slot& slot) const;
  LayerScratch<P> head_scratch(const Scratch& scratch) const;
  void read_embedding(const Handle& handle) const;
  void read_layer(const Handle& handle, std::size_t layer, bool backward) const;
  void read_head(const Handle& handle, bool backward) const;
  /// Whether any array of the layer or of an earlier part is trained.
  bool has_backward(std::size_t layer) const { return layers_[layer]->layer() >= first_trained_; }
  void sum(const Handle& handle, std::int64_t layer) const {
    if (access_ != nullptr) access_->before_sums(handle, layer);
  }

  ArrayAccess* access_;
  std::int64_t layer_count_;  ///< layers of the whole model
  architecture::TrainingObjective objective_;
  std::optional<std::size_t> positions_;  ///< index of the field, with packed documents
  bool reads_fields_;                     ///< reads fields of batches; not with a shared vocabulary
  std::int64_t first_trained_;            ///< Architecture::first_trained
  std::unique_ptr<Block<P>> embedding_;   ///< null except in the first stage
  std::vector<std::unique_ptr<Block<P>>> layers_;
  std::unique_ptr<Block<P>> head_;  ///< null except in the last stage
  bool gradient_with_losses_;
  std::byte* head_scratch_ = nullptr;
};

}  // namespace trireme::model
