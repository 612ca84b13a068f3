// Generation on a rank: passes through its layers, with a key/value cache for each layer. Passes
// over sources and passes over tokens of texts run the same blocks: a pass has no rows of the other
// stream.
#include <trireme/model/decoder.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/tensor/copy.hpp>

#include <algorithm>

namespace trireme::model {
namespace {

/// Sizes of a pass with rows of the tokens, or of the source as one sample, or of the images of a
/// text.
architecture::RankSizes pass_sizes(const deck::ModelConfig& model, const architecture::Shard& shard,
                                   std::int64_t rows, std::int64_t source_rows) {
  architecture::RankSizes n =
      source_rows > 0
          ? architecture::rank_sizes(model, shard, 1, 0, false, model.vocabulary)
          : architecture::rank_sizes(model, shard, rows, 1, false, rows * model.vocabulary);
  if (model.vision.present()) {
    if (source_rows > 0) return n;
    n.source.micro = n.pixel_words = n.projected = 0;
    n.source.tokens = n.source.rows = n.source.slice = 0;
    return n;
  }
  n.source.micro = source_rows > 0 ? 1 : 0;
  n.source.sequence = n.source.tokens = n.source.rows = n.source.slice = source_rows;
  return n;
}

}  // namespace

template <class P>
Decoder<P>::Pass::Pass(const architecture::Architecture& architecture,
                       const Parameters<P>& parameters, grid::Communicator& tensor,
                       std::int64_t count, std::int64_t source_rows)
    : axis(tensor, count, false, {}, {}, source_rows) {
  const architecture::Shard& shard = parameters.shard();
  std::vector<architecture::Kept> kept;
  for (const architecture::BlockDescription& layer : architecture.layer_kinds())
    kept.push_back(architecture::kept_for_evaluation(layer));
  plans = plan_blocks<P>(architecture, pass_sizes(architecture.model, shard, count, source_rows),
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
    : model_(architecture.model),
      shard_(parameters.shard()),
      objective_(architecture::objective_of(model_)),
      texts_(sizes.texts),
      sequence_(sizes.sequence > 0 ? sizes.sequence : model_.sequence),
      source_ends_(static_cast<std::size_t>(sizes.texts)) {
  check(!model_.predicts_masked_tokens(), "the model does not predict the next token");
  const auto add = [&](PassWidth width, std::int64_t rows, std::int64_t source_rows) {
    passes_[static_cast<std::size_t>(width)] =
        std::make_unique<Pass>(architecture, parameters, tensor, rows, source_rows);
  };
  add(PassWidth::narrow, sizes.rows, 0);
  const std::int64_t longest = model_.encoder.sequence;
  if (!model_.encoder.present()) add(PassWidth::wide, rows_of_wide_pass(model_), 0);
  if (model_.encoder.present()) add(PassWidth::source, 0, std::min(wide_rows, longest));
  if (model_.encoder.present() && longest > wide_rows) add(PassWidth::long_source, 0, longest);
  if (model_.vision.present()) add(PassWidth::source, 0, model_.source_rows());
  const layout::Slice mine = shard_.stage_layers[static_cast<std::size_t>(shard_.stages.front())];
  encoder_layers_ = static_cast<std::size_t>(
      std::clamp<std::int64_t>(model_.encoder_layers() - mine.offset, 0, mine.extent));
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
  constexpr Bytes element = sizeof(T), sum = sizeof(Accumulate<T>);
  caches_.clear();
  const Pass& narrow = pass(PassWidth::narrow);
  const std::int64_t groups = narrow.sizes().groups();
  const auto cache = [&](std::int64_t tokens) { return arena.take<T>(texts_, tokens, groups); };
  for (std::size_t layer = encoder_layers_; layer < narrow.layers.size(); ++layer) {
    if (is_projector(narrow, layer)) {
      image_rows_ = arena.take<T>(texts_ * model_.projected_rows(), model_.hidden);
      caches_.emplace_back();
      continue;
    }
    Cache& each = caches_.emplace_back(Cache{cache(sequence_), cache(sequence_), {}, {}});
    if (!model_.encoder.present()) continue;
    each.source_keys = cache(model_.encoder.sequence);
    each.source_values = cache(model_.encoder.sequence);
  }
  // The values of all passes end at the same place, so that the tables of biases, which follow the
  // rows of the source, are shared.
  Bytes most = 0;
  const auto bytes = [&](const Pass& p) {
    return architecture::value_bytes(p.sizes(), element, sum);
  };
  for (const auto& each : passes_)
    if (each) most = std::max(most, bytes(*each));
  std::byte* const values = arena.take<std::byte>(most).data();
  for (const auto& each : passes_) {
    if (!each) continue;
    Pass& p = *each;
    const architecture::RankSizes& n = p.sizes();
    // All layers share this memory, which contains their input.
    Bytes kept = 0;
    for (std::size_t kind = 1; kind < p.plans.size(); ++kind)
      kept = std::max(kept, p.plans[kind].program.kept_bytes);
    p.memory = take_block_memory(arena, kept, 0);
    if (values != nullptr) p.memory.values = values + (most - bytes(p));
    p.scratch = take_block_scratch<P>(arena, p.plans, model_, false);
    for (const auto& layer : p.layers) layer->take_memory(arena);
    p.x = trireme::matrix(
        View1<T>(reinterpret_cast<T*>(p.memory.kept), static_cast<std::size_t>(kept / element)),
        p.count(), p.reads_sources() ? n.source.hidden : n.hidden);
    p.message = flat(p.x);
    if (p.reads_sources())
      p.message = View1<T>(reinterpret_cast<T*>(p.memory.values),
                           static_cast<std::size_t>(bytes(p) / element));
    p.queries = arena.take<T>(n.rows, n.attention());
    if (sees_images(p)) {
      p.pixels = arena.take<std::int32_t>(n.pixel_words);
      continue;
    }
    const bool wide = p.reads_sources() || sees_whole_images();
    const std::int64_t columns = wide ? 5 : model_.has_source() ? 4 : 3;
    p.rows = arena.take<std::int32_t>(columns, p.count());
    p.on_host.resize(static_cast<std::size_t>(columns * p.count()));
  }
  if (!has_head()) return;
  logits_ = arena.take<Accumulate<T>>(narrow.sizes().rows, narrow.sizes().vocabulary);
  head_memory_ = take_block_memory(arena, head_plan_.program.kept_bytes, 0);
}

/// With an encoder, the fourth column is the last position of the source of the row's text; with
/// images, the row of the token's image among those of all texts. If the tokens of an image see one
/// another, the fifth column is one past the last position that the row's token sees. In a pass
/// over sources, the fourth and the fifth column are the first row, and one past the last row, of
/// the row's source; rows without a token see no row.
template <class P>
void Decoder<P>::copy(const Handle& handle, Pass& p, std::span<const CachedToken> rows) {
  const auto count = static_cast<std::size_t>(p.count());
  const std::int64_t longest = p.reads_sources() ? model_.encoder.sequence : sequence_;
  const auto value = [&](std::size_t column, std::size_t r) -> std::int32_t& {
    return p.on_host[column * count + r];
  };
  for (std::size_t r = 0; r < count; ++r) {
    const CachedToken row = r < rows.size() ? rows[r] : CachedToken{};
    check(row.position >= 0 && row.position < longest && row.text < texts_,
          "the token at position ", row.position, " of text ", row.text,
          " is not within the cache of ", texts_, " texts of ", longest, " tokens");
    value(0, r) = row.text;
    value(1, r) = row.token;
    value(2, r) = row.position;
    if (!p.reads_sources()) {
      if (model_.encoder.present())
        value(3, r) = row.text < 0 ? 0 : source_ends_[static_cast<std::size_t>(row.text)];
      if (model_.vision.present())
        value(3, r) =
            row.image_row < 0
                ? -1
                : static_cast<std::int32_t>(row.text * model_.projected_rows() + row.image_row);
      if (sees_whole_images()) value(4, r) = end_of(rows, r);
      continue;
    }
    const auto number = static_cast<std::int32_t>(r);
    value(3, r) = row.text < 0 ? number : number - row.position;
    if (row.text < 0) continue;
    check(row.position == 0 ||
              (r > 0 && value(0, r - 1) == row.text && value(2, r - 1) == row.position - 1),
          "the source of text ", row.text, " is not in consecutive rows");
    source_ends_[static_cast<std::size_t>(row.text)] = row.position;
  }
  for (std::size_t r = count; p.reads_sources() && r-- > 0;) {
    const bool continues = r + 1 < count && value(3, r + 1) == value(3, r);
    const auto number = static_cast<std::int32_t>(r);
    value(4, r) = continues ? value(4, r + 1) : value(0, r) < 0 ? number : number + 1;
  }
  copy_to_device<std::int32_t>(handle, flat(p.rows), p.on_host);
  fence(handle, "model/decoder passes tokens");
}

/// The tokens up to the last one that a token sees must be in the pass.
template <class P>
std::int32_t Decoder<P>::end_of(std::span<const CachedToken> rows, std::size_t r) {
  if (r >= rows.size() || rows[r].end == 0) return r < rows.size() ? rows[r].position + 1 : 1;
  const CachedToken& row = rows[r];
  const std::size_t last = r + static_cast<std::size_t>(std::max(row.end - 1 - row.position, 0));
  check(row.end > row.position && last < rows.size() && rows[last].text == row.text &&
            rows[last].position == row.end - 1,
        "the token at position ", row.position, " of text ", row.text,
        " sees the tokens before position ", row.end, ", which are not all in its pass");
  return row.end;
}

template <class P>
void Decoder<P>::embed(const Handle& handle, const Pass& p, const Decoding<P>& decoding) const {
  std::vector<View1<std::int32_t>> fields(objective_.fields.size());
  if (sees_images(p))
    fields[objective_.field(architecture::pixels_field)] = p.pixels;
  else  // kernels only read the tokens
    fields[objective_.field(p.reads_sources() ? "source" : "tokens")] =
        part(flat(p.rows), p.count(), p.count());
  MicroContext context;
  context.fields = fields;
  context.positions = decoding.rows.positions;
  p.embedding->decode(handle, p.x, p.memory, p.scratch, decoding, context);
}

template <class P>
auto Decoder<P>::source(const Pass& p) const -> View2<T> {
  return trireme::matrix(p.message, p.count(), p.sizes().source.hidden);
}

/// The stream of the source passes from the model's values through the layers of the encoder and
/// back. Each layer of the decoder reads it.
template <class P>
void Decoder<P>::encode(const Handle& handle, const Pass& p, const Decoding<P>& decoding) const {
  if (encoder_layers_ > 0) kernels::copy<T>(handle, flat(p.x), flat<const T>(source(p)));
  for (std::size_t l = 0; l < encoder_layers_; ++l)
    p.layers[l]->decode(handle, l + 1 == encoder_layers_ ? source(p) : p.x, p.memory, p.scratch,
                        decoding);
}

template <class P>
void Decoder<P>::run_layers(const Handle& handle, const Pass& p, const Decoding<P>& of_pass) const {
  Decoding<P> decoding = of_pass;
  if (p.reads_sources()) encode(handle, p, decoding);
  for (std::size_t l = encoder_layers_; l < p.layers.size(); ++l) {
    const Cache& cache = caches_[l - encoder_layers_];
    decoding.key_cache = cache.keys;
    decoding.value_cache = cache.values;
    decoding.source.key_cache = cache.source_keys;
    decoding.source.value_cache = cache.source_values;
    p.layers[l]->decode(handle, p.x, p.memory, p.scratch, decoding);
  }
}

template <class P>
void Decoder<P>::run(const Handle& handle, std::span<const CachedToken> rows, PassWidth width,
                     bool with_logits) {
  Pass& p = *passes_.at(static_cast<std::size_t>(width));
  check(std::ssize(rows) <= p.count() && (!with_logits || width == PassWidth::narrow),
        "a pass over ", rows.size(), " tokens");
  copy(handle, p, rows);
  Decoding<P> decoding;
  decoding.queries = p.queries;
  if (p.reads_sources()) {
    decoding.source.rows = {p.column(0), p.column(2)};
    decoding.source.begin = p.column(3);
    decoding.source.end = p.column(4);
  } else {
    decoding.rows = {p.column(0), p.column(2)};
    if (sees_whole_images()) decoding.rows.ends = p.column(4);
    if (model_.encoder.present()) decoding.source.ends = {p.column(0), p.column(3)};
    if (model_.vision.present()) decoding.images = {image_rows_, p.column(3)};
  }
  if (p.embedding) embed(handle, p, decoding);
  run_layers(handle, p, decoding);
  if (!with_logits || !head_) return;
  kernels::copy<T>(handle, flat(head_->input(head_memory_)), flat<const T>(p.x));
  decoding.logits = logits_;
  head_->decode(handle, {}, head_memory_, p.scratch, decoding);
}

template <class P>
void Decoder<P>::see(const Handle& handle, std::int32_t text,
                     std::span<const std::int32_t> pixels) {
  Pass& p = *passes_.at(static_cast<std::size_t>(PassWidth::source));
  check(sees_images(p) && text >= 0 && text < texts_ && std::ssize(pixels) == extent(p.pixels, 0),
        "images of text ", text, " with ", pixels.size(), " words of pixels");
  copy_to_device<std::int32_t>(handle, p.pixels, pixels);
  fence(handle, "model/decoder passes pixels");
  Decoding<P> decoding;
  decoding.queries = p.queries;
  const std::int64_t rows = model_.projected_rows();
  if (image_rows_.data() != nullptr) decoding.images.rows = rows_of(image_rows_, text * rows, rows);
  if (p.embedding) embed(handle, p, decoding);
  run_layers(handle, p, decoding);
}

template class Decoder<Fp32>;
template class Decoder<Fp64>;
template class Decoder<MixedBf16>;
template class Decoder<MixedFp16>;

}  // namespace trireme::model
