// Sampling of tokens, and generation with a cache of keys and values.
#include <trireme/train/generator.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/philox.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/model/decoder.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/train/kernel_choice.hpp>
#include <trireme/train/load.hpp>
#include <trireme/train/precision.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::train {

std::int32_t draw(const std::vector<double>& logits, const Sampling& sampling, std::uint32_t sample,
                  std::uint64_t position) {
  const auto bad = std::ranges::find_if(logits, [](double x) { return !std::isfinite(x); });
  if (bad != logits.end())
    throw Error(text("the logit of token ", bad - logits.begin(), " after ", position,
                     " generated tokens is ", *bad,
                     ", not finite: the checkpoint's weights are "
                     "damaged or have diverged; generate from an earlier checkpoint"));
  std::size_t ids = logits.size();
  if (sampling.ids > 0) ids = std::min(ids, static_cast<std::size_t>(sampling.ids));
  std::vector<std::int32_t> order(ids);
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const double x = logits[static_cast<std::size_t>(a)];
    const double y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::size_t keep = order.size();
  if (sampling.top_k > 0) keep = std::min(keep, static_cast<std::size_t>(sampling.top_k));
  if (sampling.temperature == 0) keep = 1;
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(),
                    likelier);
  if (keep == 1) return order[0];

  std::vector<double> cumulative;
  double sum = 0;
  std::size_t likely = 0;
  for (std::size_t i = 0; i < keep; ++i) {
    const double above =
        logits[static_cast<std::size_t>(order[i])] - logits[static_cast<std::size_t>(order[0])];
    const double weight = std::exp(above / sampling.temperature);  // 1 for the likeliest
    sum += weight;
    cumulative.push_back(sum);
    if (weight >= sampling.min_p) likely = i + 1;
  }
  if (sampling.top_p < 1) {
    const auto last = std::ranges::lower_bound(cumulative, sampling.top_p * sum);
    keep = std::min(keep, static_cast<std::size_t>(last - cumulative.begin()) + 1);
  }
  keep = std::min(keep, likely);
  cumulative.resize(keep);
  sum = cumulative.back();
  const RandomKey key{sampling.seed, Purpose::sampling, sample, 0};
  const double u = uniform_from_word(philox(key, position / 4).w[position % 4]) * sum;
  const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), u) - cumulative.begin();
  return order[std::min(static_cast<std::size_t>(at), keep - 1)];
}

namespace {

template <class P>
class TypedGenerator final : public Generator {
 public:
  using T = typename P::Compute;

  TypedGenerator(const deck::Config& config, const architecture::Architecture& architecture)
      : sequence_(config.model.sequence),
        vocabulary_(config.model.vocabulary),
        handle_(kernel_choice(config.precision)),
        architecture_(architecture),
        parameters_(architecture, architecture::whole_model(architecture), false),
        decoder_(architecture, parameters_, 1) {
    handle_.prepare_products(dtype_of<T>);
  }

  void load(const checkpoint::Reader& reader) override {
    load_weights(handle_, reader, architecture_, parameters_);
  }

  void generate(const std::vector<std::int32_t>& prompt, std::int64_t tokens,
                std::int32_t end_token, const Sampling& sampling, std::uint32_t sample,
                const std::function<bool(std::int32_t)>& take) override {
    std::vector<std::int32_t> text = prompt;
    feed_tail(text, sequence_);
    for (std::int64_t written = 0; written < tokens; ++written) {
      const std::int32_t next =
          draw(logits(), sampling, sample, static_cast<std::uint64_t>(written));
      if (next == end_token || !take(next) || written + 1 == tokens) return;
      text.push_back(next);
      if (decoder_.position() < sequence_)
        feed(next, true);
      else
        feed_tail(text, std::max<std::int64_t>(1, sequence_ / 2));
    }
  }

 private:
  /// Clears the cache and fills it with the last `most` tokens.
  void feed_tail(const std::vector<std::int32_t>& text, std::int64_t most) {
    decoder_.reset();
    const std::size_t n = std::min(text.size(), static_cast<std::size_t>(most));
    for (std::size_t i = text.size() - n; i < text.size(); ++i) feed(text[i], i + 1 == text.size());
  }

  void feed(std::int32_t token, bool with_logits) {
    const std::vector<std::int32_t> one{token};
    copy_to_device<std::int32_t>(handle_, decoder_.tokens(), one);
    fence(handle_, "train/generator passes a token");
    decoder_.step(handle_, with_logits);
  }

  std::vector<double> logits() {
    using Logit = Accumulate<T>;
    std::vector<Logit> values(static_cast<std::size_t>(vocabulary_));
    const View1<Logit> row(decoder_.logits().data(), values.size());
    copy_to_host<Logit>(handle_, values, row, "train/generator reads the logits");
    return {values.begin(), values.end()};
  }

  std::int64_t sequence_;
  std::int64_t vocabulary_;
  kernels::Handle handle_;
  const architecture::Architecture& architecture_;
  model::Parameters<P> parameters_;
  model::Decoder<P> decoder_;
};

}  // namespace

std::unique_ptr<Generator> make_generator(const deck::Config& config,
                                          const architecture::Architecture& architecture) {
  return with_precision(config.precision.compute, [&]<class P>(P) -> std::unique_ptr<Generator> {
    return std::make_unique<TypedGenerator<P>>(config, architecture);
  });
}

}  // namespace trireme::train
