// Kernel calls of attention, rotary position embeddings and norms of heads.
#include <trireme/model/attention_operations.hpp>

#include <trireme/architecture/objective.hpp>
#include <trireme/kernels/attention_sinks.hpp>

#include <trireme/kernels/cache.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::model {

namespace {

// The parameters of rotary position embeddings follow from the deck's keys. Frequencies are in
// radians per token; a wavelength is 2π / frequency, in tokens.

using deck::ModelConfig;

constexpr double two_pi = 2 * std::numbers::pi;

/// Base of the frequencies in dynamic scaling: theta (factor r − (factor − 1))^(K / (K − 2)), with
/// r = max(1, sequence / original sequence).
double dynamic_theta(const ModelConfig& m) {
  const auto size = static_cast<double>(m.rotary_columns());
  const double ratio = static_cast<double>(std::max(m.sequence, m.rope_original_sequence)) /
                       static_cast<double>(m.rope_original_sequence);
  return m.rope_theta * std::pow(m.rope_factor * ratio - (m.rope_factor - 1), size / (size - 2));
}

/// Index, as a real number, of the pair of elements that makes `turns` turns within the original
/// sequence.
double pair_of(double turns, const ModelConfig& m) {
  const auto original = static_cast<double>(m.rope_original_sequence);
  return static_cast<double>(m.rotary_columns()) * std::log(original / (turns * two_pi)) /
         (2 * std::log(m.rope_theta));
}

/// YaRN: pairs up to `first` keep their frequency, and the frequencies of pairs from `last` on are
/// divided by the factor; between them, the frequency is interpolated (Peng et al. 2023, arXiv
/// 2309.00071, section 3.2). `first` is rounded down and `last` up, as in the authors' program,
/// unless the model does not truncate.
kernels::RotaryScaling yarn(const ModelConfig& m) {
  kernels::RotaryScaling s;
  s.factor = m.rope_factor;
  const double fast = pair_of(m.rope_beta_fast, m), slow = pair_of(m.rope_beta_slow, m);
  const double first = std::max(m.rope_truncate ? std::floor(fast) : fast, 0.0);
  double last = std::min(m.rope_truncate ? std::ceil(slow) : slow,
                         static_cast<double>(m.rotary_columns() - 1));
  if (last == first) last += 0.001;
  s.start = -first / (last - first);
  s.per_pair = 1 / (last - first);
  s.magnitude = m.rope_attention_factor > 0 ? m.rope_attention_factor
                : m.rope_mscale > 0
                    ? m.yarn_magnitude(m.rope_mscale) / m.yarn_magnitude(m.rope_mscale_all)
                    : m.yarn_magnitude(1);
  return s;
}

/// Frequencies with wavelengths above original / low are divided by the factor; frequencies with
/// wavelengths below original / high are kept; between them, the frequency is interpolated.
kernels::RotaryScaling llama3(const ModelConfig& m) {
  const double low = m.rope_low_frequency_factor;
  const double width = m.rope_high_frequency_factor - low;
  const auto original = static_cast<double>(m.rope_original_sequence);
  return {m.rope_factor, 1 + low / width, 0, -original / (two_pi * width)};
}

/// Sets head size, theta and scaling for samples of model.sequence tokens, by the formulas of the
/// rope types in Hugging Face transformers.
void set_frequencies(kernels::Rotary& rotary, const ModelConfig& m, std::int64_t window) {
  rotary.head_size = m.head_size();
  rotary.size = m.rotary_columns();
  rotary.interleaved = m.rope_interleaved;
  if (m.window_rope_theta > 0 && window > 0) {
    rotary.theta = m.window_rope_theta;
    return;
  }
  rotary.theta = m.rope_theta;
  switch (m.rope_scaling) {
    case RotaryScalingKind::none:
      break;
    case RotaryScalingKind::linear:
      rotary.scaling = {m.rope_factor, 1};
      break;
    case RotaryScalingKind::dynamic:
      rotary.theta = dynamic_theta(m);
      break;
    case RotaryScalingKind::yarn:
      rotary.scaling = yarn(m);
      break;
    case RotaryScalingKind::llama3:
      rotary.scaling = llama3(m);
      break;
  }
}

}  // namespace

// ---- rotary positions

template <class P>
RotaryOperation<P>::RotaryOperation(const architecture::Operation& op,
                                    const OperationPlace<P>& place)
    : BlockOperation<P>(op) {
  rotary_.heads = place.plan.sizes.heads + place.plan.sizes.key_value_heads;
  set_frequencies(rotary_, place.model(), op.window);
  rotary_.sequence = place.plan.sizes.sequence;
  rotary_.places = place.axis.context().places();
}

template <class P>
void RotaryOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  kernels::Rotary rotary = rotary_;
  rotary.positions = c.decoding != nullptr ? c.decoding->rows.positions : c.context.positions;
  kernels::rotary_forward<typename P::Compute>(c.handle, c.values.matrix(this->op_.output), rotary);
}

template <class P>
void RotaryOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                        bool) const {
  kernels::Rotary rotary = rotary_;
  rotary.positions = c.context.positions;
  kernels::rotary_backward<typename P::Compute>(c.handle, c.values.gradient(this->op_.output),
                                                rotary);
}

template <class P>
std::optional<Evaluations> RotaryOperation<P>::evaluations(const PassArguments<P>& c) const {
  return Evaluations{kernels::Arithmetic::sine_and_cosine,
                     static_cast<double>(c.values.sizes().tokens * rotary_.size / 2)};
}

// ---- heads of latent attention

namespace {

template <class P>
kernels::LatentHeads latent_heads(const OperationPlace<P>& place) {
  const deck::ModelConfig& m = place.model();
  return {place.plan.sizes.heads, m.head_size(), m.rotary_columns(), m.value_columns()};
}

}  // namespace

template <class P>
JoinHeadsOperation<P>::JoinHeadsOperation(const architecture::Operation& op,
                                          const OperationPlace<P>& place)
    : BlockOperation<P>(op), axis_(place.axis), heads_(latent_heads(place)) {}

template <class P>
void JoinHeadsOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const auto& v = c.values;
  const View2<T> common =
      axis_.gather(c.handle, v.matrix(this->op_.scratch.front()), v.matrix(this->op_.inputs[2]),
                   "attention, common keys, forward");
  kernels::join_heads<T>(c.handle, v.matrix(this->op_.output), v.matrix(this->op_.input()),
                         v.matrix(this->op_.inputs[1]), common, heads_);
}

template <class P>
void JoinHeadsOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                           bool) const {
  const auto& v = c.values;
  const View2<T> own = v.gradient(this->op_.inputs[2]), all = v.matrix(this->op_.scratch.front());
  kernels::join_heads_backward<T>(c.handle, v.gradient(this->op_.input()),
                                  v.gradient(this->op_.inputs[1]), axis_.partial(all, own),
                                  v.gradient(this->op_.output), heads_);
  axis_.reduce(c.handle, own, all, "attention, common keys, backward");
}

template <class P>
TakeValuesOperation<P>::TakeValuesOperation(const architecture::Operation& op,
                                            const OperationPlace<P>& place)
    : BlockOperation<P>(op), heads_(latent_heads(place)) {}

template <class P>
void TakeValuesOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  kernels::take_values<T>(c.handle, c.values.matrix(this->op_.output),
                          c.values.matrix(this->op_.input()), heads_);
}

template <class P>
void TakeValuesOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                            bool) const {
  kernels::take_values_backward<T>(c.handle, c.values.gradient(this->op_.input()),
                                   c.values.gradient(this->op_.output), heads_);
}

// ---- norm of heads

template <class P>
HeadNormOperation<P>::HeadNormOperation(const architecture::Operation& op,
                                        const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      norm_{place.plan.sizes.heads, place.plan.sizes.key_value_heads, place.plan.sizes.head_size,
            place.model().norm_epsilon, place.model().gain_offset()} {
  const std::string query = place.array(op.arrays.front().name);
  const std::string key = place.array(op.arrays.back().name);
  gain_query_ = place.parameters.weight(query, norm_.head_size);
  gain_key_ = place.parameters.weight(key, norm_.head_size);
  dgain_query_ = place.parameters.gradient(query, norm_.head_size);
  dgain_key_ = place.parameters.gradient(key, norm_.head_size);
}

template <class P>
void HeadNormOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  kernels::head_norm_forward<T>(
      c.handle, c.values.matrix(this->op_.output), c.values.matrix(this->op_.saved.front()),
      c.values.sums(this->op_.saved.back()), gain_query_, gain_key_, norm_);
}

template <class P>
void HeadNormOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                          bool) const {
  const View2<T> dqkv = c.values.gradient(this->op_.output);
  const View2<T> raw = c.values.matrix(this->op_.saved.front());
  const View2<Accumulate<T>> inverse = c.values.sums(this->op_.saved.back());
  kernels::head_norm_backward_input<T>(c.handle, dqkv, raw, inverse, gain_query_, gain_key_, norm_);
}

template <class P>
void HeadNormOperation<P>::backward_weight(const PassArguments<P>& c) const {
  if (!this->op_.trains()) return;
  kernels::head_norm_backward_weight<T>(
      c.handle, dgain_query_, dgain_key_, c.values.gradient(this->op_.output),
      c.values.matrix(this->op_.saved.front()), c.values.sums(this->op_.saved.back()), norm_);
}

// ---- norm of all heads together

template <class P>
WidthNormOperation<P>::WidthNormOperation(const architecture::Operation& op,
                                          const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis),
      forward_(op.name + ", squares, forward"),
      backward_(op.name + ", products, backward") {
  const architecture::RankSizes& n = place.plan.sizes;
  const architecture::ArraySpec& query = op.arrays.front();
  const architecture::ArraySpec& key = op.arrays.back();
  norm_.queries = n.attention();
  norm_.keys = n.groups();
  norm_.all_queries = query.elements();
  norm_.all_keys = key.elements();
  // A lower rank also has the first head of keys.
  if (n.heads_before > 0) norm_.counted_elsewhere = n.head_size;
  norm_.epsilon = place.model().norm_epsilon;
  norm_.gain_offset = place.model().gain_offset();
  gain_query_ = place.parameters.weight(place.array(query.name), norm_.queries);
  gain_key_ = place.parameters.weight(place.array(key.name), norm_.keys);
  dgain_query_ = place.parameters.gradient(place.array(query.name), norm_.queries);
  dgain_key_ = place.parameters.gradient(place.array(key.name), norm_.keys);
}

template <class P>
void WidthNormOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View2<T> qkv = c.values.matrix(this->op_.output);
  const View2<Accumulate<T>> sums = by_part(c.values.list(this->op_.saved.back()));
  kernels::width_norm_squares<T>(c.handle, sums, c.values.matrix(this->op_.saved.front()), qkv,
                                 norm_);
  axis_.sum(c.handle, sums, forward_.c_str());
  kernels::width_norm_factors<T>(c.handle, sums, norm_);
  kernels::width_norm_forward<T>(c.handle, qkv, sums, gain_query_, gain_key_, norm_);
}

template <class P>
void WidthNormOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                           bool) const {
  const View2<T> dqkv = c.values.gradient(this->op_.output);
  const View2<T> raw = c.values.matrix(this->op_.saved.front());
  const View2<Accumulate<T>> inverse = by_part(c.values.list(this->op_.saved.back()));
  const View2<Accumulate<T>> products = by_part(c.values.gradient_list(this->op_.saved.back()));
  kernels::width_norm_products<T>(c.handle, products, dqkv, raw, inverse, gain_query_, gain_key_,
                                  norm_);
  axis_.sum(c.handle, products, backward_.c_str());
  kernels::width_norm_backward_input<T>(c.handle, dqkv, raw, inverse, products, gain_query_,
                                        gain_key_, norm_);
}

template <class P>
void WidthNormOperation<P>::backward_weight(const PassArguments<P>& c) const {
  if (!this->op_.trains()) return;
  kernels::width_norm_backward_weight<T>(c.handle, dgain_query_, dgain_key_,
                                         c.values.gradient(this->op_.output),
                                         c.values.matrix(this->op_.saved.front()),
                                         by_part(c.values.list(this->op_.saved.back())), norm_);
}

// ---- attention

kernels::AttentionShape attention_shape(const architecture::RankSizes& n,
                                        const deck::ModelConfig& m,
                                        const architecture::Operation& op) {
  kernels::AttentionShape shape;
  shape.batch = n.micro;
  shape.sequence = n.sequence;
  shape.heads = n.heads;
  shape.key_value_heads = n.key_value_heads;
  shape.head_size = n.head_size;
  shape.group = n.group;
  shape.heads_before = n.heads_before;
  shape.causal = op.causal;
  shape.window = op.window;
  shape.scale = m.attention_scale();
  shape.cap = m.attention_softcap;
  if (op.crosses)
    shape.key_sequence = n.source.sequence;
  else if (m.has_relative_positions())
    shape.buckets = kernels::relative_buckets(m.relative_buckets, m.relative_distance, !op.causal);
  return shape;
}

template <class P>
AttentionOperation<P>::AttentionOperation(const architecture::Operation& op,
                                          const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      shape_(attention_shape(place.plan.sizes, place.model(), op)),
      heads_(place.parameters.shard().part(place.model().heads)),
      all_heads_(place.model().heads),
      scores_(static_cast<double>(place.plan.sizes.tokens * place.plan.sizes.heads) *
              architecture::visible_tokens(op)),
      layer_(place.layer()),
      crosses_(op.crosses),
      of_encoder_(place.plan.description.stream == architecture::Stream::source) {
  if (place.model().reads_pairs() && !op.causal) {
    const auto objective = architecture::objective_of(place.model());
    key_begin_ = objective.field(crosses_ ? "key_begin" : "source_begin");
    key_end_ = objective.field(crosses_ ? "key_end" : "source_end");
  }
  const deck::VisionConfig& vision = place.model().vision;
  if (vision.present() && vision.sees_whole_images() && !of_encoder_)
    key_end_ = architecture::objective_of(place.model()).field(architecture::key_end_field);
  if (place.axis.context().size() > 1)
    ring_.emplace(place.axis.context(), shape_, place.model().sequence);
  if (op.arrays.empty()) return;
  const std::string name = place.array(op.arrays.front().name);
  sinks_ = place.parameters.weight(name, shape_.heads);
  dsinks_ = place.parameters.gradient(name, shape_.heads);
}

template <class P>
kernels::AttentionDropout AttentionOperation<P>::dropout(const MicroContext& c) const {
  const auto layer = static_cast<std::uint32_t>(layer_);
  const std::uint32_t stream = crosses_ ? architecture::cross_attention_site + layer : layer;
  return {c.dropout, RandomKey{c.seed, Purpose::attention_dropout, stream, c.step}, c.first_sample,
          heads_.offset, all_heads_};
}

template <class P>
auto AttentionOperation<P>::logsumexp(const PassArguments<P>& c) const -> View3<Accumulate<T>> {
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  return View3<Accumulate<T>>(c.values.list(this->op_.saved.front()).data(), size(shape_.batch),
                              size(shape_.heads), size(shape_.sequence));
}

template <class P>
kernels::AttentionShape AttentionOperation<P>::shape(const MicroContext& c) const {
  kernels::AttentionShape shape = shape_;
  if (key_begin_) shape.key_begin = c.fields[*key_begin_];
  if (key_end_) {
    shape.causal = false;
    shape.key_end = c.fields[*key_end_];
  } else {
    shape.positions = c.positions;
  }
  return shape;
}

/// Appends the new keys and values to the caches, and attends to the caches: those of a text's
/// earlier tokens, or those of its source. The tokens of the sources attend to one another.
template <class P>
void AttentionOperation<P>::decode(const PassArguments<P>& c, const Decoding<P>& d) const {
  const SourceDecoding<P>& source = d.source;
  const View2<T> q = c.values.matrix(this->op_.input());
  const View2<T> o = c.values.matrix(this->op_.output);
  if (of_encoder_) {
    kernels::AttentionShape shape = shape_;
    shape.key_begin = source.begin;  // empty for images, each of which is whole
    shape.key_end = source.end;
    return kernels::attention_forward<T>(c.handle, o, logsumexp(c), q, shape, {}, biases(c));
  }
  if (!crosses_) {
    kernels::cache_append<T>(c.handle, d.queries, d.key_cache, d.value_cache, q, d.rows);
    return kernels::attention_decode<T>(c.handle, o, d.queries, d.key_cache, d.value_cache, d.rows,
                                        shape_, sinks_, biases(c));
  }
  const View2<T> key_value = c.values.matrix(this->op_.inputs[1]);
  if (key_value.extent(0) > 0)
    kernels::cache_append<T>(c.handle, View2<T>(nullptr, key_value.extent(0), 0), source.key_cache,
                             source.value_cache, key_value, source.rows);
  if (o.extent(0) > 0)
    kernels::attention_decode<T>(c.handle, o, q, source.key_cache, source.value_cache, source.ends,
                                 shape_);
}

/// o = dropout(softmax(mask(cap(scale q kᵀ)), sink)) v per head; logsumexp is kept for the backward
/// pass.
template <class P>
void AttentionOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View2<T> qkv = c.values.matrix(this->op_.input());
  const View2<T> o = c.values.matrix(this->op_.output);
  if (c.decoding != nullptr) return decode(c, *c.decoding);
  if (crosses_)
    kernels::attention_forward<T>(c.handle, o, logsumexp(c), qkv,
                                  c.values.matrix(this->op_.inputs[1]), shape(c.context),
                                  dropout(c.context));
  else if (ring_)
    ring_->forward(c.handle, o, logsumexp(c), qkv, c.scratch.ring, c.context.positions,
                   dropout(c.context));
  else
    kernels::attention_forward<T>(c.handle, o, logsumexp(c), qkv, shape(c.context),
                                  dropout(c.context), biases(c));
  if (!this->op_.arrays.empty())
    kernels::attention_sinks_forward<T>(c.handle, o, logsumexp(c), sinks_);
}

template <class P>
auto AttentionOperation<P>::work(const PassArguments<P>& c) const -> View1<Accumulate<T>> {
  const std::int64_t n = kernels::attention_workspace_elements<T>(c.handle.choice(), shape_);
  return trireme::part(c.scratch.attention_work, 0, n);
}

/// The gradient of the sinks. The other gradients follow from o and logsumexp with the sinks.
template <class P>
void AttentionOperation<P>::backward_weight(const PassArguments<P>& c) const {
  if (!this->op_.trains()) return;
  kernels::attention_sinks_backward<T>(c.handle, dsinks_, c.values.gradient(this->op_.output),
                                       c.values.matrix(this->op_.output), logsumexp(c), sinks_,
                                       c.values.sums(this->op_.scratch.front()));
}

template <class P>
void AttentionOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                           bool) const {
  const View2<T> dqkv = c.values.gradient(this->op_.input());
  const View2<T> grad = c.values.gradient(this->op_.output);
  const View2<T> o = c.values.matrix(this->op_.output);
  const View2<T> qkv = c.values.matrix(this->op_.input());
  if (crosses_)
    return kernels::attention_backward<T>(c.handle, dqkv, c.values.gradient(this->op_.inputs[1]),
                                          grad, o, qkv, c.values.matrix(this->op_.inputs[1]),
                                          logsumexp(c), work(c), shape(c.context),
                                          dropout(c.context));
  if (ring_)
    return ring_->backward(c.handle, dqkv, grad, o, qkv, logsumexp(c), c.scratch.ring,
                           c.context.positions, dropout(c.context));
  const View2<Accumulate<T>> dbiases =
      has_biases() ? c.values.gradient_sums(this->op_.inputs.back()) : View2<Accumulate<T>>();
  kernels::attention_backward<T>(c.handle, dqkv, grad, o, qkv, logsumexp(c), work(c),
                                 shape(c.context), dropout(c.context), biases(c), dbiases);
}

template <class P>
std::optional<Evaluations> AttentionOperation<P>::evaluations(const PassArguments<P>& c) const {
  using kernels::Arithmetic;
  return Evaluations{c.context.dropout > 0 ? Arithmetic::random_word : Arithmetic::exponential,
                     scores_};
}

#define TRIREME_INSTANTIATE(P)           \
  template class RotaryOperation<P>;     \
  template class JoinHeadsOperation<P>;  \
  template class TakeValuesOperation<P>; \
  template class HeadNormOperation<P>;   \
  template class WidthNormOperation<P>;  \
  template class AttentionOperation<P>;
TRIREME_INSTANTIATE(Fp32)
TRIREME_INSTANTIATE(Fp64)
TRIREME_INSTANTIATE(MixedBf16)
TRIREME_INSTANTIATE(MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
