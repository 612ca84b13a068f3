#include <trireme/kernels/elementwise.hpp>
#include <trireme/model/stage.hpp>

namespace trireme::model {

template <class P>
Stage<P>::Stage(const architecture::Architecture& architecture, const Parameters<P>& parameters,
                const Shape& shape)
    : model_(architecture.model),
      shape_(shape),
      embedding_(parameters, model_),
      head_(parameters, model_) {
  for (std::int64_t layer = 0; layer < model_.layers; ++layer)
    blocks_.emplace_back(parameters, model_, layer);
  Arena saved_plan;
  cut_saved(saved_plan);
  Arena scratch_plan;
  cut_scratch(scratch_plan);
  saved_ = Arena("saved activations", saved_plan.used());
  scratch_ = Arena("scratch", scratch_plan.used());
  cut_saved(saved_);
  cut_scratch(scratch_);
}

template <class P>
void Stage<P>::cut_saved(Arena& arena) {
  const std::int64_t tokens = shape_.micro * model_.sequence;
  slots_.assign(index(shape_.slots), {});
  for (Slot& slot : slots_) {
    slot.tokens = arena.take<std::int32_t>(tokens);
    slot.targets = arena.take<std::int32_t>(tokens);
    // Evaluation needs one layer at a time: all layers share the first one's memory but for the
    // residual stream.
    for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
      if (layer == 0 || shape_.training)
        slot.layers.push_back(Block<P>::cut_saved(arena, model_, shape_.micro));
      else
        slot.layers.push_back(slot.layers.front());
    }
    slot.head = Head<P>::cut_saved(arena, model_, shape_.micro);
    if (!shape_.split_backward) continue;
    for (std::int64_t layer = 0; layer < model_.layers; ++layer)
      slot.work.push_back(Block<P>::cut_work(arena, model_, shape_.micro));
    slot.dx = arena.take<T>(tokens, model_.hidden);
  }
}

template <class P>
void Stage<P>::cut_scratch(Arena& arena) {
  loss_ = arena.take<double>(1);
  head_scratch_ = Head<P>::cut_scratch(arena, model_, shape_.micro);
  if (!shape_.training) return;
  block_scratch_ = Block<P>::cut_scratch(arena, model_, shape_.micro);
  if (shape_.split_backward) return;
  dx_ = arena.take<T>(shape_.micro * model_.sequence, model_.hidden);
  work_ = Block<P>::cut_work(arena, model_, shape_.micro);
}

template <class P>
void Stage<P>::zero_loss(const Exec& exec) const {
  kernels::fill(exec, loss_, 0.0);
}

template <class P>
auto Stage<P>::layer_output(const Slot& slot, std::size_t layer) const -> View2<T> {
  return layer + 1 < slot.layers.size() ? slot.layers[layer + 1].x : slot.head.x;
}

template <class P>
void Stage<P>::forward_layers(const Exec& exec, const Slot& slot,
                              const MicroContext& context) const {
  const View2<T> first = slot.layers.empty() ? slot.head.x : slot.layers.front().x;
  embedding_.forward(exec, first, slot.tokens, context);
  for (std::size_t l = 0; l < blocks_.size(); ++l)
    blocks_[l].forward(exec, layer_output(slot, l), slot.layers[l], context);
}

template <class P>
void Stage<P>::forward(const Exec& exec, int slot_number, const MicroContext& context) const {
  const Slot& slot = slots_[index(slot_number)];
  forward_layers(exec, slot, context);
  head_.forward(exec, loss_, slot.head, head_scratch_, slot.targets, context);
}

template <class P>
void Stage<P>::evaluate(const Exec& exec, int slot_number, const MicroContext& context,
                        std::int64_t samples) const {
  const Slot& slot = slots_[index(slot_number)];
  MicroContext plain = context;
  plain.dropout = 0;
  forward_layers(exec, slot, plain);
  head_.evaluate(exec, loss_, slot.head, head_scratch_, slot.targets, samples * model_.sequence);
}

template <class P>
void Stage<P>::backward(const Exec& exec, int slot_number, const MicroContext& context,
                        const LayerDone& done) const {
  const Slot& slot = slots_[index(slot_number)];
  head_.backward_input(exec, dx_, slot.head);
  head_.backward_weight(exec, slot.head);
  done(model_.layers);
  for (std::size_t l = blocks_.size(); l-- > 0;) {
    blocks_[l].backward_input(exec, dx_, work_, block_scratch_, slot.layers[l], context);
    blocks_[l].backward_weight(exec, work_, slot.layers[l]);
    done(static_cast<std::int64_t>(l));
  }
  embedding_.backward_weight(exec, dx_, slot.tokens, context);
  done(-1);
}

template <class P>
void Stage<P>::backward_input(const Exec& exec, int slot_number,
                              const MicroContext& context) const {
  const Slot& slot = slots_[index(slot_number)];
  head_.backward_input(exec, slot.dx, slot.head);
  for (std::size_t l = blocks_.size(); l-- > 0;)
    blocks_[l].backward_input(exec, slot.dx, slot.work[l], block_scratch_, slot.layers[l], context);
}

template <class P>
void Stage<P>::backward_weight(const Exec& exec, int slot_number, const MicroContext& context,
                               const LayerDone& done) const {
  const Slot& slot = slots_[index(slot_number)];
  head_.backward_weight(exec, slot.head);
  done(model_.layers);
  for (std::size_t l = blocks_.size(); l-- > 0;) {
    blocks_[l].backward_weight(exec, slot.work[l], slot.layers[l]);
    done(static_cast<std::int64_t>(l));
  }
  embedding_.backward_weight(exec, slot.dx, slot.tokens, context);
  done(-1);
}

template class Stage<Fp32>;
template class Stage<Fp64>;

}  // namespace trireme::model
