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

/// Interface that passes call before they use the arrays of a part of the model. If replicas divide
/// the arrays, the weights must be gathered first, and the gradients may use memory that held the
/// gradients of another layer. `block`: see architecture::block_of(). Asynchronous on exec.
class ArrayAccess {
 public:
  virtual ~ArrayAccess() = default;

  /// After this call, kernels may read the weights. `next`: the part whose weights the pass reads
  /// next; empty if there is none.
  virtual void before_reads(const Exec& exec, std::int64_t block,
                            std::optional<std::int64_t> next) = 0;
  /// After this call, kernels may add to the gradients.
  virtual void before_sums(const Exec& exec, std::int64_t block) = 0;
};

/// The input or output of a stage, or its gradient: rows [R, D] of the tokens, with an encoder rows
/// [R', D'] of the source and biases of relative positions, in elements of T, and rows [R, D] of
/// each module that predicts a further token.
template <class T>
struct StageRows {
  View2<T> tokens;
  View2<T> source = {};
  View1<T> tables = {};
  std::vector<View2<T>> modules = {};
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
    /// [R, D] input rows of the tokens, if no layer reads them first: with layers of an encoder, or
    /// without any layer and without the head.
    View2<T> x;
    std::vector<BlockMemory> layers;
    BlockMemory head;
    View2<T> dx;  // [R, D] gradient of the input; only in the first stage with split passes
    /// The model's values and their gradients, at architecture::value_offset(); null without any.
    std::byte* values = nullptr;
    std::byte* value_gradients = nullptr;
    SlotOffload offload;  ///< offload of `layers`
  };

  /// Memory that layers use in turn if saved activations are offloaded.
  using Windows = std::vector<BlockMemory>;

  /// Memory used within one pass.
  struct Scratch {
    View1<double> losses;  // [terms] Σ cross entropy of each term since zero_losses
    BlockScratch<P> layer;
  };

  struct SlotShape {
    bool training = true;         ///< false: evaluation; layers then share memory
    bool split_backward = false;  ///< backward_input and backward_weight are separate
    /// Gradients of the model's values, which passes of all slots use in turn.
    std::byte* value_gradients = nullptr;
  };

  /// Called in a backward pass after the submission of the last kernel that adds to the weight
  /// gradients of a block. `block`: number in Architecture::blocks.
  using BlockDone = std::function<void(std::int64_t block)>;
  /// Called between layers to progress messages in flight; may be empty.
  using Between = std::function<void()>;

  /// `plans`: one plan for each kind of block except the head. `number`: number of the stage.
  /// `access`: null if no replicas divide the arrays. Arguments must outlive this object.
  PipelineStage(const architecture::Architecture& architecture, std::span<const BlockPlan> plans,
                const BlockPlan& head, const Parameters<P>& parameters, const TensorAxis& axis,
                Stage number, ArrayAccess* access = nullptr);
  // Copies are deleted explicitly: moving views may throw in some Kokkos versions, and a vector of
  // stages would then copy the stages.
  PipelineStage(const PipelineStage&) = delete;
  PipelineStage& operator=(const PipelineStage&) = delete;
  PipelineStage(PipelineStage&&) = default;
  PipelineStage& operator=(PipelineStage&&) = default;

  /// Takes the memory of a slot. `windows`, if not empty, are the layers' memory, and
  /// SlotOffload::window() assigns them to the layers. `number`: number of the slot.
  Slot take_slot(Arena& arena, const architecture::RankSizes& sizes, const SlotShape& shape,
                 const Windows& windows = {}, int number = 0) const;

  /// Memory of the stage's input. Kernels submitted to `handle` after this call may write to it:
  /// the previous stage's output, or in the first stage the tokens' rows of the table of a shared
  /// vocabulary.
  StageRows<T> input(const Handle& handle, const Slot& slot) const;
  /// `tokens` with the other rows of the stage's output, or with `gradients` of their gradients.
  StageRows<T> with_values(View2<T> tokens, const Slot& slot, bool gradients) const;
  /// Takes the head's memory for use within one pass, if the stage has a head.
  void take_head_scratch(Arena& arena);
  /// Takes the layers' memory for values that are valid in several passes.
  void take_lasting_memory(Arena& arena);
  /// In the last stage: the output [R, D] of the final norm, later replaced by its gradient.
  View2<T> head_output(const Slot& slot) const { return head_tensor<T>(slot, "y"); }
  /// A tensor of the head by name, after a pass of the last stage.
  template <class U>
  View2<U> head_tensor(const Slot& slot, std::string_view name) const {
    return head_->template tensor<U>(name, slot.head, head_scratch_);
  }
  std::int64_t layers() const { return static_cast<std::int64_t>(layers_.size()); }

  /// Computes output [R, D]; the last stage instead adds to scratch.losses, and computes the
  /// gradients that HeadGradient assigns to the forward pass.
  void forward(const Handle& handle, View2<T> output, const Slot& slot, const Scratch& scratch,
               const MicroContext& context, const Between& between) const;
  /// The forward pass without dropout and without gradients. Only the first `samples` samples count
  /// in the losses.
  void evaluate(const Handle& handle, View2<T> output, const Slot& slot, const Scratch& scratch,
                const MicroContext& context, std::int64_t samples, const Between& between) const;
  /// dx [R, D]: on entry, the gradient of the output, which the last stage does not need; on
  /// return, the gradient of the input, which the first stage does not have.
  void backward(const Handle& handle, View2<T> dx, const Slot& slot, const Scratch& scratch,
                const MicroContext& context, const BlockDone& done) const;
  void backward_input(const Handle& handle, View2<T> dx, const Slot& slot, const Scratch& scratch,
                      const MicroContext& context, const Between& between) const;
  void backward_weight(const Handle& handle, const Slot& slot, const Scratch& scratch,
                       const MicroContext& context, const BlockDone& done) const;

 private:
  /// Calls `layer_done` after each layer, with the layer's index in the stage.
  void forward_layers(const Handle& handle, View2<T> output, const Slot& slot,
                      const Scratch& scratch, const MicroContext& context,
                      const BlockDone& layer_done) const;
  void take_layers(Slot& slot, Arena& arena, const SlotShape& shape) const;
  View2<T> layer_output(const Slot& slot, std::size_t layer, View2<T> output) const;
  View2<T> source_of(std::byte* values) const;
  static BlockMemory values_of(const Slot& slot) {
    return {nullptr, nullptr, slot.values, slot.value_gradients};
  }
  /// Memory of the tokens' rows after the encoder's last layer of this stage.
  View2<T> tokens_after_encoder(const Slot& slot, View2<T> output) const {
    if (encoder_layers_ < layers_.size())
      return layers_[encoder_layers_]->input(slot.layers[encoder_layers_]);
    return head_ ? head_->input(slot.head) : output;
  }
  /// Gradient of a layer's output: of the tokens' rows, or of the source's.
  View2<T> stream(const Slot& slot, std::size_t layer, View2<T> dx) const {
    return layer < encoder_layers_ ? source_of(slot.value_gradients) : dx;
  }
  /// The context of a layer's passes. Images have neither dropout nor positions of documents.
  MicroContext context_of(std::size_t layer, const MicroContext& context) const;
  /// Clears the gradients of values in the last stage, before the first reader adds to them.
  void begin_gradients(const Handle& handle, const Slot& slot) const;

  MicroContext with_fields(const MicroContext& context, const Slot& slot) const;
  /// `context` for passes that add to the losses: those of the context, or else of the scratch.
  static MicroContext with_losses(const MicroContext& context, const Scratch& scratch);
  BlockScratch<P> head_scratch(const Scratch& scratch) const;
  void read_embedding(const Handle& handle) const;
  void read_layer(const Handle& handle, std::size_t layer, bool backward) const;
  void read_head(const Handle& handle, bool backward) const;
  /// Whether any array of the layer or of an earlier part is trained.
  bool has_backward(std::size_t layer) const { return layers_[layer]->number() >= first_backward_; }
  void sum(const Handle& handle, std::int64_t block) const {
    if (access_ != nullptr) access_->before_sums(handle, block);
  }

  ArrayAccess* access_;
  std::int64_t head_block_;  ///< number of the head's block
  architecture::TrainingObjective objective_;
  std::optional<std::size_t> positions_;      ///< index of the field "positions", if there is one
  std::optional<std::size_t> sample_tokens_;  ///< likewise
  bool reads_fields_;  ///< whether embedding and head read fields; false with a shared vocabulary
  std::int64_t first_trained_;           ///< Architecture::first_trained
  std::int64_t first_backward_;          ///< Architecture::first_backward
  std::unique_ptr<Block<P>> embedding_;  ///< null except in the first stage
  std::vector<std::unique_ptr<Block<P>>> layers_;
  std::size_t encoder_layers_ = 0;    ///< number of the encoder's layers, which are first
  std::int64_t source_sequence_ = 0;  ///< rows of a source
  bool sees_images_ = false;          ///< whether sources are images
  architecture::RankSizes sizes_;     ///< of the model's tokens
  std::unique_ptr<Block<P>> head_;    ///< null except in the last stage
  bool gradient_with_losses_;
  std::byte* head_scratch_ = nullptr;
};

}  // namespace trireme::model
