// Generation on a rank: passes through its layers, with a key/value cache for each layer.
#include <trireme/model/decoder.hpp>

#include <trireme/architecture/objective.hpp>
#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/tensor/copy.hpp>

namespace trireme::model {

template <class P>
Decoder<P>::Pass::Pass(const architecture::Architecture& architecture,
                       const Parameters<P>& parameters, grid::Communicator& tensor,
                       std::int64_t count)
    : axis(tensor, count, false) {
  const architecture::Shard& shard = parameters.shard();
  std::vector<architecture::Kept> kept;
  for (const architecture::BlockDescription& layer : architecture.layer_kinds())
    kept.push_back(architecture::kept_for_evaluation(layer));
  plans = plan_blocks<P>(architecture,
                         architecture::rank_sizes(architecture.model, shard, count, 1, false,
                                                  count * architecture.model.vocabulary),
                         kept, false, false);
  if (shard.has_embedding())
    embedding = std::make_unique<Block<P>>(plans.front(), parameters, architecture, axis, 0);
  check(shard.stages.size() == 1, "generation with ", shard.stages.size(), " stages on a rank");
  const layout::Slice mine = shard.stage_layers[static_cast<std::size_t>(shard.stages.front())];
  for (std::int64_t layer = mine.offset; layer < mine.end(); ++layer)
    layers.push_back(std::make_unique<Block<P>>(plans[architecture.kind_of(layer) + 1], parameters,
                                                architecture, axis,
                                                architecture::block_of_layer(layer)));
}

template <class P>
Decoder<P>::Decoder(const architecture::Architecture& architecture, const Parameters<P>& parameters,
                    grid::Communicator& tensor, const Sizes& sizes)
    : model_(architecture.model), shard_(parameters.shard()), texts_(sizes.texts) {
  check(model_.predicts_next_token(), "the model does not predict the next token");
  for (const PassWidth width : {PassWidth::narrow, PassWidth::wide})
    passes_[static_cast<std::size_t>(width)] = std::make_unique<Pass>(
        architecture, parameters, tensor, width == PassWidth::wide ? wide_rows : sizes.rows);
  const TensorAxis& axis = pass(PassWidth::narrow).axis;
  if (has_head()) {
    head_plan_ = plan_head<P>(model_, pass(PassWidth::narrow).sizes(),
                              architecture::HeadGradient::with_losses);
    head_ = std::make_unique<Block<P>>(head_plan_, parameters, architecture, axis,
                                       architecture.head_block());
  }
  Arena plan;
  take_memory(plan);
  memory_ = Arena("key/value cache", plan.used());
  take_memory(memory_);
}

template <class P>
void Decoder<P>::take_memory(Arena& arena) {
  keys_.clear();
  values_.clear();
  const Pass& narrow = pass(PassWidth::narrow);
  for (std::size_t layer = 0; layer < narrow.layers.size(); ++layer) {
    keys_.push_back(arena.take<T>(texts_, model_.sequence, narrow.sizes().groups()));
    values_.push_back(arena.take<T>(texts_, model_.sequence, narrow.sizes().groups()));
  }
  for (const auto& each : passes_) {
    Pass& p = *each;
    const architecture::RankSizes& n = p.sizes();
    // All layers share this memory, which contains their input.
    p.memory = take_block_memory(arena, p.plans.back().program.kept_bytes, 0);
    p.scratch = take_block_scratch<P>(arena, p.plans, model_, false);
    for (const auto& layer : p.layers) layer->take_memory(arena);
    p.x = p.layers.empty() ? arena.take<T>(n.rows, n.hidden) : p.layers.front()->input(p.memory);
    p.queries = arena.take<T>(n.rows, n.attention());
    p.rows = arena.take<std::int32_t>(3, n.rows);
    p.on_host.resize(static_cast<std::size_t>(3 * n.rows));
  }
  if (!has_head()) return;
  logits_ = arena.take<Accumulate<T>>(narrow.sizes().rows, narrow.sizes().vocabulary);
  head_memory_ = take_block_memory(arena, head_plan_.program.kept_bytes, 0);
}

template <class P>
void Decoder<P>::run(const Handle& handle, std::span<const CachedToken> rows, PassWidth width,
                     bool with_logits) {
  Pass& p = *passes_[static_cast<std::size_t>(width)];
  const auto count = static_cast<std::size_t>(p.sizes().rows);
  check(rows.size() <= count && (!with_logits || width == PassWidth::narrow), "a pass over ",
        rows.size(), " tokens");
  for (std::size_t r = 0; r < count; ++r) {
    const CachedToken row = r < rows.size() ? rows[r] : CachedToken{};
    check(row.position >= 0 && row.position < model_.sequence && row.text < texts_,
          "the token at position ", row.position, " of text ", row.text,
          " is not within the cache of ", texts_, " texts of ", model_.sequence, " tokens");
    p.on_host[r] = row.text;
    p.on_host[count + r] = row.token;
    p.on_host[2 * count + r] = row.position;
  }
  copy_to_device<std::int32_t>(handle, flat(p.rows), p.on_host);
  fence(handle, "model/decoder passes tokens");
  const auto row = [&](std::size_t number) {
    return View1<std::int32_t>(p.rows.data() + number * count, count);
  };
  const kernels::CacheRows places{row(0), row(2)};
  if (p.embedding) {
    const architecture::TrainingObjective objective = architecture::objective_of(model_);
    std::vector<View1<std::int32_t>> fields(objective.fields.size());
    fields[objective.field("tokens")] = row(1);
    MicroContext context;
    context.fields = fields;
    context.positions = places.positions;
    p.embedding->forward(handle, p.x, {}, p.scratch, context);
  }
  for (std::size_t l = 0; l < p.layers.size(); ++l)
    p.layers[l]->decode(handle, p.x, p.memory, p.scratch,
                        {keys_[l], values_[l], p.queries, places});
  if (!with_logits || !head_) return;
  kernels::copy<T>(handle, flat(head_->input(head_memory_)), flat<const T>(p.x));
  Decoding<P> decoding;
  decoding.logits = logits_;
  head_->decode(handle, {}, head_memory_, p.scratch, decoding);
}

template class Decoder<Fp32>;
template class Decoder<Fp64>;
template class Decoder<MixedBf16>;
template class Decoder<MixedFp16>;

}  // namespace trireme::model
