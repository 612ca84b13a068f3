#include <trireme/model/decoder.hpp>

#include <trireme/base/check.hpp>

namespace trireme::model {

template <class P>
Decoder<P>::Decoder(const architecture::Architecture& architecture, const Parameters<P>& parameters,
                    std::int64_t rows)
    : model_(architecture.model),
      shard_(parameters.shard()),
      rows_(rows),
      axis_(rows),
      embedding_(parameters, model_, axis_),
      plan_(plan_layers<P>(
          architecture.layer,  // rows of one pass: T = B
          architecture::local_sizes(model_, shard_, rows, 1, false, rows * model_.vocabulary),
          architecture::kept_for_evaluation(architecture.layer), false, false)),
      head_(parameters, model_, axis_) {
  for (std::int64_t layer = 0; layer < model_.layers; ++layer)
    layers_.push_back(std::make_unique<Layer<P>>(plan_, parameters, model_, axis_, layer));
  Arena plan;
  take_memory(plan);
  memory_ = Arena("key/value cache", plan.used());
  take_memory(memory_);
}

template <class P>
void Decoder<P>::take_memory(Arena& arena) {
  keys_.clear();
  values_.clear();
  const architecture::LocalSizes& one_token = plan_.sizes;
  for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
    keys_.push_back(arena.take<T>(rows_, model_.sequence, one_token.groups()));
    values_.push_back(arena.take<T>(rows_, model_.sequence, one_token.groups()));
  }
  tokens_ = arena.take<std::int32_t>(rows_);
  logits_ = arena.take<Accumulate<T>>(rows_, model_.vocabulary);
  row_ = take_layer_memory(arena, plan_.program);
  scratch_ = take_layer_scratch<P>(arena, plan_, model_, false);
  queries_ = arena.take<T>(rows_, one_token.attention());
  head_row_ = head_.take_saved(arena, one_token);
}

template <class P>
void Decoder<P>::step(const Handle& handle, bool with_logits) {
  check(position_ < model_.sequence, "the key/value cache is full: ", position_, " positions");
  const View2<T> x = layers_.front()->input(row_);
  embedding_.decode(handle, x, tokens_, position_);
  for (std::size_t l = 0; l < layers_.size(); ++l)
    layers_[l]->decode(handle, x, row_, scratch_, {keys_[l], values_[l], queries_, position_});
  if (with_logits) head_.logits(handle, logits_, x, head_row_);
  ++position_;
}

template class Decoder<Fp32>;
template class Decoder<Fp64>;
template class Decoder<MixedBf16>;
template class Decoder<MixedFp16>;

}  // namespace trireme::model
