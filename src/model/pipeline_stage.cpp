// Passes of a stage: embedding, layers and head in order, with copies of offloaded activations
// between layers.
#include <trireme/model/pipeline_stage.hpp>

#include <trireme/kernels/elementwise.hpp>

#include <algorithm>

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
      sample_tokens_(objective_.find("sample_tokens")),
      reads_fields_(!parameters.shard().shares_vocabulary()),
      first_trained_(architecture.first_trained),
      first_backward_(architecture.first_backward),
      gradient_with_losses_(head.head == architecture::HeadGradient::with_losses) {
  const architecture::Shard& shard = parameters.shard();
  if (number == 0)
    embedding_ = std::make_unique<Block<P>>(plans.front(), parameters, architecture, axis, 0);
  const layout::Slice layers = shard.stage_layers.at(static_cast<std::size_t>(number));
  sizes_ = plans.front().sizes;
  source_sequence_ = architecture.model.source_sequence();
  sees_images_ = architecture.model.vision.present();
  encoder_layers_ = static_cast<std::size_t>(std::clamp<std::int64_t>(
      architecture.model.encoder_layers() - layers.offset, 0, layers.extent));
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
  if (sample_tokens_) result.sample_tokens = slot.fields[*sample_tokens_];
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
  // Without a backward pass, one layer is processed at a time: all of them share the memory of the
  // largest.
  const auto shares = [&](std::size_t l) { return !shape.training || !has_backward(l); };
  Bytes most = 0;
  for (std::size_t l = 0; l < layers_.size() && shares(l); ++l)
    most = std::max(most, layers_[l]->program().kept_bytes);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const architecture::BlockProgram& program = layers_[l]->program();
    if (!shares(l))
      slot.layers.push_back(take_block_memory(arena, program.kept_bytes, program.work_bytes));
    else
      slot.layers.push_back(slot.layers.empty() ? take_block_memory(arena, most, 0)
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
  if (encoder_layers_ > 0 || (layers_.empty() && !head_)) slot.x = arena.take<T>(n.rows, n.hidden);
  if (windows.empty()) take_layers(slot, arena, shape);
  for (std::int64_t l = 0; l < layers() && !windows.empty(); ++l) {
    const auto count = static_cast<std::int64_t>(windows.size());
    slot.layers.push_back(
        windows[static_cast<std::size_t>(SlotOffload::window(number, l, layers(), count))]);
  }
  if (head_) slot.head = take_block_memory(arena, head_->program().kept_bytes, 0);
  const bool keeps_gradients = shape.split_backward && embedding_ != nullptr;
  if (keeps_gradients) slot.dx = arena.take<T>(n.rows, n.hidden);
  const Bytes bytes = architecture::value_bytes(n, sizeof(T), sizeof(Accumulate<T>));
  if (bytes == 0) return slot;
  slot.values = arena.take<std::byte>(bytes).data();
  slot.value_gradients =
      keeps_gradients ? arena.take<std::byte>(bytes).data() : shape.value_gradients;
  const auto give = [&](BlockMemory& block) {
    block.values = slot.values;
    block.value_gradients = slot.value_gradients;
  };
  std::ranges::for_each(slot.layers, give);
  give(slot.head);
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
auto PipelineStage<P>::input(const Handle& handle, const Slot& slot) const -> StageRows<T> {
  slot.offload.begin_write(handle, 0);
  if (slot.x.data() == nullptr)
    return with_values(
        layers_.empty() ? head_->input(slot.head) : layers_.front()->input(slot.layers.front()),
        slot, false);
  StageRows<T> rows = with_values(slot.x, slot, false);
  if (encoder_layers_ > 0) rows.source = layers_.front()->input(slot.layers.front());
  return rows;
}

template <class P>
auto PipelineStage<P>::source_of(std::byte* values) const -> View2<T> {
  return View2<T>(reinterpret_cast<T*>(values), static_cast<std::size_t>(sizes_.source.rows),
                  static_cast<std::size_t>(sizes_.source.hidden));
}

template <class P>
auto PipelineStage<P>::with_values(View2<T> tokens, const Slot& slot, bool gradients) const
    -> StageRows<T> {
  std::byte* const values = gradients ? slot.value_gradients : slot.values;
  if (values == nullptr) return {tokens};
  constexpr Bytes element = sizeof(T), sum = sizeof(Accumulate<T>);
  const auto offset = [&](architecture::ModelValue value, std::int64_t module = 0) {
    return architecture::value_offset(value, sizes_, element, sum, module);
  };
  using architecture::ModelValue;
  StageRows<T> rows{tokens, source_of(values),
                    View1<T>(reinterpret_cast<T*>(values + offset(ModelValue::encoder_bias)),
                             static_cast<std::size_t>(
                                 architecture::table_bytes(sizes_, element, sum) / element))};
  for (std::int64_t module = 0; module < sizes_.modules; ++module)
    rows.modules.emplace_back(reinterpret_cast<T*>(values + offset(ModelValue::of_module, module)),
                              static_cast<std::size_t>(sizes_.rows),
                              static_cast<std::size_t>(sizes_.hidden));
  return rows;
}

template <class P>
MicroContext PipelineStage<P>::context_of(std::size_t layer, const MicroContext& context) const {
  MicroContext result = context;
  if (layer >= encoder_layers_) return result;
  result.sequence = source_sequence_;
  if (!sees_images_) return result;
  result.dropout = 0;
  result.positions = {};
  return result;
}

template <class P>
void PipelineStage<P>::begin_gradients(const Handle& handle, const Slot& slot) const {
  if (!head_ || slot.value_gradients == nullptr) return;
  const StageRows<T> rows = with_values({}, slot, true);
  kernels::fill(handle, flat(rows.source), 0.0);
  kernels::fill(handle, rows.tables, 0.0);
  for (const View2<T>& module : rows.modules) kernels::fill(handle, flat(module), 0.0);
}

template <class P>
auto PipelineStage<P>::layer_output(const Slot& slot, std::size_t layer, View2<T> output) const
    -> View2<T> {
  if (layer + 1 == encoder_layers_) return source_of(slot.values);
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
    const StageRows<T> rows = input(handle, slot);
    embedding_->forward(handle, rows.tokens, values_of(slot), scratch.layer, context);
    // The embedding writes the source's rows to the memory of the values.
    if (encoder_layers_ > 0) copy_rows(handle, rows.source, source_of(slot.values));
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const auto layer = static_cast<std::int64_t>(l);
    read_layer(handle, l, false);
    slot.offload.begin_write(handle, layer + 1);
    layers_[l]->forward(handle, layer_output(slot, l, output), slot.layers[l], scratch.layer,
                        context_of(l, context));
    if (l + 1 == encoder_layers_) {
      slot.offload.begin_write(handle, layer + 1);
      copy_rows(handle, tokens_after_encoder(slot, output), slot.x);
    }
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
  begin_gradients(handle, slot);
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
    if (has_backward(l))
      layers_[l]->backward(handle, stream(slot, l, dx), slot.layers[l], scratch.layer,
                           context_of(l, of_layers));
    slot.offload.end_read(handle, layer);
    done(layers_[l]->number());
  }
  if (embedding_) {
    sum(handle, 0);
    if (first_trained_ == 0)
      embedding_->backward(handle, dx, values_of(slot), scratch.layer, context);
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
  begin_gradients(handle, slot);
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
      layers_[l]->backward_input(handle, stream(slot, l, dx), slot.layers[l], scratch.layer,
                                 context_of(l, of_layers));
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
      layers_[l]->backward_weight(handle, slot.layers[l], scratch.layer, context_of(l, context));
    slot.offload.end_read(handle, layer);
    done(layers_[l]->number());
  }
  if (embedding_) {
    if (first_trained_ == 0)
      embedding_->backward(handle, slot.dx, values_of(slot), scratch.layer, context);
    done(0);
  }
}

template class PipelineStage<Fp32>;
template class PipelineStage<Fp64>;
template class PipelineStage<MixedBf16>;
template class PipelineStage<MixedFp16>;

}  // namespace trireme::model
