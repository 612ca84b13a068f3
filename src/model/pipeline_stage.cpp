// Passes of a stage: embedding, layers and head in order, with copies of offloaded activations
// between layers.
#include <trireme/model/pipeline_stage.hpp>

#include <trireme/kernels/elementwise.hpp>

namespace trireme::model {
namespace {

template <class T>
void copy_rows(const Handle& handle, View2<T> to, View2<T> from) {
  if (to.data() == from.data()) return;
  kernels::copy<T>(handle, flat(to), flat<const T>(from));
}

}  // namespace

template <class P>
PipelineStage<P>::PipelineStage(const architecture::Architecture& architecture,
                                std::span<const BlockPlan> plans, const BlockPlan& head,
                                const Parameters<P>& parameters, const TensorAxis& axis,
                                Stage number, ArrayAccess* access)
    : access_(access),
      head_block_(architecture.head_block()),
      objective_(architecture::objective_of(architecture.model)),
      positions_(objective_.find("positions")),
      reads_fields_(!parameters.shard().shares_vocabulary()),
      first_trained_(architecture.first_trained),
      gradient_with_losses_(head.head == architecture::HeadGradient::with_losses) {
  const architecture::Shard& shard = parameters.shard();
  if (number == 0)
    embedding_ = std::make_unique<Block<P>>(plans.front(), parameters, architecture, axis, 0);
  const layout::Slice layers = shard.stage_layers.at(static_cast<std::size_t>(number));
  for (std::int64_t layer = layers.offset; layer < layers.end(); ++layer)
    layers_.push_back(std::make_unique<Block<P>>(plans[architecture.kind_of(layer) + 1], parameters,
                                                 architecture, axis,
                                                 architecture::block_of_layer(layer)));
  if (number == shard.last_stage())
    head_ = std::make_unique<Block<P>>(head, parameters, architecture, axis, head_block_);
}

template <class P>
MicroContext PipelineStage<P>::with_fields(const MicroContext& context, const Slot& slot) const {
  MicroContext result = context;
  result.fields = slot.fields;
  if (positions_) result.positions = slot.fields[*positions_];
  return result;
}

template <class P>
MicroContext PipelineStage<P>::with_losses(const MicroContext& context, const Scratch& scratch) {
  MicroContext result = context;
  if (result.losses.extent(0) == 0) result.losses = scratch.losses;
  return result;
}

template <class P>
void PipelineStage<P>::take_layers(Slot& slot, Arena& arena, const SlotShape& shape) const {
  // Evaluation processes one layer at a time: all layers share the first layer's memory.
  for (const auto& layer : layers_) {
    const architecture::BlockProgram& program = layer->program();
    slot.layers.push_back(slot.layers.empty() || shape.training
                              ? take_block_memory(arena, program.kept_bytes, program.work_bytes)
                              : slot.layers.front());
  }
}

template <class P>
auto PipelineStage<P>::take_slot(Arena& arena, const architecture::RankSizes& n,
                                 const SlotShape& shape, const Windows& windows, int number) const
    -> Slot {
  Slot slot;
  for (const architecture::BatchField& field : objective_.fields)
    slot.fields.push_back((reads_fields_ || field.at_layers) &&
                                  field.is_read(embedding_ != nullptr, head_ != nullptr)
                              ? arena.take<std::int32_t>(architecture::rows_of(field.rows, n))
                              : View1<std::int32_t>());
  if (layers_.empty() && !head_) slot.x = arena.take<T>(n.rows, n.hidden);
  if (windows.empty()) take_layers(slot, arena, shape);
  for (std::int64_t l = 0; l < layers() && !windows.empty(); ++l) {
    const auto count = static_cast<std::int64_t>(windows.size());
    slot.layers.push_back(
        windows[static_cast<std::size_t>(SlotOffload::window(number, l, layers(), count))]);
  }
  if (head_) slot.head = take_block_memory(arena, head_->program().kept_bytes, 0);
  if (shape.split_backward && embedding_) slot.dx = arena.take<T>(n.rows, n.hidden);
  return slot;
}

template <class P>
void PipelineStage<P>::take_head_scratch(Arena& arena) {
  if (head_) head_scratch_ = arena.take<std::byte>(head_->program().transient_bytes).data();
}

template <class P>
BlockScratch<P> PipelineStage<P>::head_scratch(const Scratch& scratch) const {
  BlockScratch<P> result = scratch.layer;
  result.transient = head_scratch_;
  return result;
}

template <class P>
void PipelineStage<P>::take_lasting_memory(Arena& arena) {
  for (const auto& layer : layers_) layer->take_memory(arena);
}

template <class P>
auto PipelineStage<P>::input(const Handle& handle, const Slot& slot) const -> View2<T> {
  slot.offload.begin_write(handle, 0);
  if (!slot.layers.empty()) return layers_.front()->input(slot.layers.front());
  return head_ ? head_->input(slot.head) : slot.x;
}

template <class P>
auto PipelineStage<P>::layer_output(const Slot& slot, std::size_t layer, View2<T> output) const
    -> View2<T> {
  if (layer + 1 < layers_.size()) return layers_[layer + 1]->input(slot.layers[layer + 1]);
  return head_ ? head_->input(slot.head) : output;
}

template <class P>
void PipelineStage<P>::read_embedding(const Handle& handle) const {
  if (access_ == nullptr) return;
  std::optional<std::int64_t> next;
  if (!layers_.empty())
    next = layers_.front()->number();
  else if (head_)
    next = head_block_;
  access_->before_reads(handle, 0, next);
}

template <class P>
void PipelineStage<P>::read_layer(const Handle& handle, std::size_t layer, bool backward) const {
  if (access_ == nullptr) return;
  std::optional<std::int64_t> next;
  if (backward) {
    if (!has_backward(layer)) return;
    if (layer > 0 && has_backward(layer - 1)) next = layers_[layer - 1]->number();
  } else if (layer + 1 < layers_.size()) {
    next = layers_[layer + 1]->number();
  } else if (head_) {
    next = head_block_;
  }
  access_->before_reads(handle, layers_[layer]->number(), next);
}

template <class P>
void PipelineStage<P>::read_head(const Handle& handle, bool backward) const {
  if (access_ == nullptr) return;
  std::optional<std::int64_t> next;
  if (backward && !layers_.empty() && has_backward(layers_.size() - 1))
    next = layers_.back()->number();
  access_->before_reads(handle, head_block_, next);
}

template <class P>
void PipelineStage<P>::forward_layers(const Handle& handle, View2<T> output, const Slot& slot,
                                      const Scratch& scratch, const MicroContext& of_micro,
                                      const BlockDone& layer_done) const {
  const MicroContext context = with_fields(of_micro, slot);
  if (embedding_) {
    read_embedding(handle);
    embedding_->forward(handle, input(handle, slot), {}, scratch.layer, context);
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const auto layer = static_cast<std::int64_t>(l);
    read_layer(handle, l, false);
    slot.offload.begin_write(handle, layer + 1);
    layers_[l]->forward(handle, layer_output(slot, l, output), slot.layers[l], scratch.layer,
                        context);
    layer_done(layer);
  }
  if (head_) read_head(handle, false);
  if (layers_.empty() && !head_) copy_rows(handle, output, slot.x);
}

template <class P>
void PipelineStage<P>::forward(const Handle& handle, View2<T> output, const Slot& slot,
                               const Scratch& scratch, const MicroContext& context,
                               const Between& between) const {
  forward_layers(handle, output, slot, scratch, context, [&](std::int64_t layer) {
    slot.offload.keep(handle, layer);
    if (between) between();
  });
  if (!head_) return;
  const MicroContext of_head = with_losses(with_fields(context, slot), scratch);
  head_->forward(handle, {}, slot.head, head_scratch(scratch), of_head);
  if (gradient_with_losses_)
    head_->backward_losses(handle, slot.head, head_scratch(scratch), of_head);
}

template <class P>
void PipelineStage<P>::evaluate(const Handle& handle, View2<T> output, const Slot& slot,
                                const Scratch& scratch, const MicroContext& context,
                                std::int64_t samples, const Between& between) const {
  MicroContext plain = context;
  plain.dropout = 0;
  plain.adapter_dropout = 0;
  plain.losses = scratch.losses;
  plain.samples = samples;
  forward_layers(handle, output, slot, scratch, plain, [&](std::int64_t) {
    if (between) between();
  });
  if (!head_) return;
  head_->forward(handle, {}, slot.head, head_scratch(scratch), with_fields(plain, slot));
}

template <class P>
void PipelineStage<P>::backward(const Handle& handle, View2<T> dx, const Slot& slot,
                                const Scratch& scratch, const MicroContext& of_micro,
                                const BlockDone& done) const {
  const MicroContext context = with_fields(of_micro, slot);
  const MicroContext of_layers = with_losses(context, scratch);
  slot.offload.fetch(layers() - 1);
  if (head_) {
    read_head(handle, true);
    if (!gradient_with_losses_)
      head_->backward_losses(handle, slot.head, head_scratch(scratch), context);
    head_->backward(handle, dx, slot.head, head_scratch(scratch), context);
    done(head_block_);
  }
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const auto layer = static_cast<std::int64_t>(l);
    read_layer(handle, l, true);
    sum(handle, layers_[l]->number());
    slot.offload.begin_read(handle, layer);
    if (has_backward(l)) layers_[l]->backward(handle, dx, slot.layers[l], scratch.layer, of_layers);
    slot.offload.end_read(handle, layer);
    done(layers_[l]->number());
  }
  if (embedding_) {
    sum(handle, 0);
    if (first_trained_ == 0) embedding_->backward(handle, dx, {}, scratch.layer, context);
    done(0);
  }
}

template <class P>
void PipelineStage<P>::backward_input(const Handle& handle, View2<T> dx, const Slot& slot,
                                      const Scratch& scratch, const MicroContext& of_micro,
                                      const Between& between) const {
  const MicroContext context = with_fields(of_micro, slot);
  const MicroContext of_layers = with_losses(context, scratch);
  slot.offload.fetch(layers() - 1);
  if (head_) {
    read_head(handle, true);
    if (!gradient_with_losses_)
      head_->backward_losses(handle, slot.head, head_scratch(scratch), context);
    head_->backward_input(handle, dx, slot.head, head_scratch(scratch), context);
  }
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const auto layer = static_cast<std::int64_t>(l);
    read_layer(handle, l, true);
    slot.offload.begin_read(handle, layer);
    if (has_backward(l))
      layers_[l]->backward_input(handle, dx, slot.layers[l], scratch.layer, of_layers);
    slot.offload.keep(handle, layer, SlotOffload::Part::work);
    if (between) between();
  }
}

template <class P>
void PipelineStage<P>::backward_weight(const Handle& handle, const Slot& slot,
                                       const Scratch& scratch, const MicroContext& of_micro,
                                       const BlockDone& done) const {
  const MicroContext context = with_fields(of_micro, slot);
  slot.offload.fetch(layers() - 1, SlotOffload::Part::work);
  if (head_) {
    head_->backward_weight(handle, slot.head, head_scratch(scratch), context);
    done(head_block_);
  }
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const auto layer = static_cast<std::int64_t>(l);
    if (architecture::reads_weights(layers_[l]->program().backward_weight))
      read_layer(handle, l, true);
    slot.offload.begin_read(handle, layer, SlotOffload::Part::work);
    if (has_backward(l))
      layers_[l]->backward_weight(handle, slot.layers[l], scratch.layer, context);
    slot.offload.end_read(handle, layer);
    done(layers_[l]->number());
  }
  if (embedding_) {
    if (first_trained_ == 0) embedding_->backward(handle, slot.dx, {}, scratch.layer, context);
    done(0);
  }
}

template class PipelineStage<Fp32>;
template class PipelineStage<Fp64>;
template class PipelineStage<MixedBf16>;
template class PipelineStage<MixedFp16>;

}  // namespace trireme::model
