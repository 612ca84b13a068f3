#include <trireme/base/text.hpp>
#include <trireme/deck/precision_checks.hpp>

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
  return mistakes;
}

}  // namespace trireme::deck
