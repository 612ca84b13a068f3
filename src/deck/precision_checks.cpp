#include <trireme/deck/precision_checks.hpp>

#include <trireme/base/text.hpp>
#include <trireme/deck/layout.hpp>

#include <numeric>

namespace trireme::deck {

std::vector<std::string> precision_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const PrecisionConfig& p = deck.config.precision;
  const std::string compute = deck.cite("precision", "compute");
  if (p.tf32 && p.compute != DType::fp32)
    report(deck.cite("precision", "tf32"), " applies to fp32, but the deck has ", compute,
           "; remove it, or choose compute = \"fp32\"");
  const std::string attention = deck.cite("precision", "attention");
  const bool cudnn = p.attention == AttentionKind::cudnn;
  if ((cudnn || p.attention == AttentionKind::tensor_cores) && size_of(p.compute) != 2)
    report(attention, " supports bf16 and fp16, not ", compute,
           "; choose attention = \"auto\", or compute = \"bf16\" or \"fp16\"");
  if (cudnn && deck.config.model.dropout > 0)
    report(attention, " draws dropout masks that depend on the layout, so it cannot be used with ",
           deck.cite("model", "dropout"), "; choose dropout = 0, or attention = \"auto\"");
  if (p.products == Products::fp8 && p.compute != DType::bf16)
    report(deck.cite("precision", "products"), " needs bf16, but the deck has ", compute,
           "; choose compute = \"bf16\", or products = \"compute\"");
  return mistakes;
}

namespace {

/// Every tensor rank has the same part of the feed-forward, in whole units.
bool splits(std::int64_t feed_forward, std::int64_t tensor) {
  return feed_forward % (fp8_unit * tensor) == 0;
}

/// "choose 32 or 48": the nearest multiples of `unit`.
std::string nearest(std::int64_t n, std::int64_t unit) {
  const std::int64_t below = n / unit * unit;
  return text("choose ", below > 0 ? text(below, " or ") : "", below + unit);
}

}  // namespace

bool fp8_fits(const Config& config, std::int64_t tensor, std::int64_t micro) {
  const ModelConfig& m = config.model;
  return config.precision.products != Products::fp8 ||
         (m.hidden % fp8_unit == 0 && m.head_size() % fp8_unit == 0 &&
          splits(m.feed_forward, tensor) && micro * m.sequence % fp8_unit == 0);
}

std::vector<std::string> fp8_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const ModelConfig& m = deck.config.model;
  if (deck.config.precision.products != Products::fp8) return mistakes;
  const std::string needs = text(" not a multiple of ", fp8_unit, ", which ",
                                 deck.cite("precision", "products"), " needs; ");
  const auto report = [&](const auto&... parts) {
    mistakes.push_back(text(parts..., ", or products = \"compute\""));
  };
  if (m.hidden % fp8_unit != 0)
    report(deck.cite("model", "hidden"), " is", needs, nearest(m.hidden, fp8_unit));
  if (m.head_size() % fp8_unit != 0)
    report(deck.cite("model", "heads"), " gives a head size of ", m.head_size(), ",", needs,
           "set head_size, or choose other heads");
  const std::int64_t tensor = is_open(deck, "parallel", "tensor") ? 1 : deck.config.parallel.tensor;
  if (!splits(m.feed_forward, tensor))
    report(deck.cite("model", "feed_forward"), " over ", deck.cite("parallel", "tensor"),
           " gives parts that are", needs, nearest(m.feed_forward, fp8_unit * tensor),
           tensor > 1 ? ", another tensor" : "");
  const std::int64_t tokens = deck.config.batch.micro * m.sequence;
  if (!is_open(deck, "batch", "micro") && tokens % fp8_unit != 0)
    report(deck.cite("batch", "micro"), " · ", deck.cite("model", "sequence"), " = ", tokens, " is",
           needs, "choose a micro of ", fp8_unit / std::gcd(fp8_unit, m.sequence),
           " or a multiple of it");
  return mistakes;
}

}  // namespace trireme::deck
