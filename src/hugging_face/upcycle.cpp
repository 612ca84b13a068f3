// A model without experts becomes one with experts: the family with experts, the copies of its
// feed-forward parts, and new routers.
#include <trireme/hugging_face/upcycle.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/philox.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>

namespace trireme::hugging_face {
namespace {

/// The family with experts and otherwise the same properties; std::nullopt if there is none.
std::optional<Family> family_of_experts(Family family) {
  switch (family) {
    case Family::llama:
    case Family::mistral:
      return Family::mixtral;
    case Family::qwen3:
      return Family::qwen3_moe;
    case Family::gpt:
    case Family::qwen2:
    case Family::gemma:
    case Family::gemma2:
    case Family::gemma3:
    case Family::olmo2:
    case Family::bert:
    case Family::mixtral:
    case Family::qwen3_moe:
    case Family::olmoe:
    case Family::qwen2_moe:
    case Family::gpt_oss:
    case Family::deepseek_v3:
    case Family::t5:
      return {};
  }
  return {};
}

constexpr std::string_view dense = "feed_forward.";

}  // namespace

ModelFile upcycled(const ModelFile& file, std::int64_t number) {
  check_usage(!file.model.vision.present(), file.path,
              ": the model sees images; --experts is for models of texts, leave it out");
  const auto family = family_of_experts(file.model.family);
  check_usage(family.has_value(), file.path, ": a ", name_of(file.model.family),
              file.model.experts.present()
                  ? " has experts already; leave --experts out"
                  : " has no family with experts; --experts is for llama, mistral and qwen3");
  ModelFile out = file;
  out.format = &format_of(*family);
  out.model.family = *family;
  out.model.experts = {.number = number,
                       .active = std::min<std::int64_t>(2, number),
                       .feed_forward = file.model.feed_forward,
                       .balance = ExpertBalance::sequence};
  return out;
}

void expect_upcycled(const deck::Deck& deck) {
  const deck::ExpertsConfig& e = deck.config.model.experts;
  const auto expect = [&](bool holds, const char* key, const char* remedy) {
    check_usage(holds, deck.cite("experts", key),
                ": with --experts, a model computes at first what "
                "its original computes; choose ",
                remedy);
  };
  expect(e.normalised, "normalised", "normalised = true");
  expect(e.scale == 1, "scale", "scale = 1.0");
  expect(e.shared_feed_forward == 0, "shared_feed_forward", "shared_feed_forward = 0");
  check_usage(e.feed_forward == deck.config.model.feed_forward,
              deck.cite("experts", "feed_forward"), ": with --experts, each expert is a copy of ",
              deck.cite("model", "feed_forward"), " columns; choose the same number");
}

std::vector<Tensor> copies_for_experts(const Tensor& tensor, const deck::ModelConfig& model) {
  const auto of_experts = [&](const Piece& piece) {
    const std::size_t at = piece.array.find(dense);
    return at == std::string::npos || !model.experts.in_layer(std::stoll(
                                          piece.array.substr(std::string("layers.").size())))
               ? std::string::npos
               : at;
  };
  const std::size_t at = of_experts(tensor.pieces.front());
  if (at == std::string::npos) return {tensor};
  std::vector<Tensor> copies;
  for (std::int64_t expert = 0; expert < model.experts.number; ++expert) {
    Tensor& copy = copies.emplace_back(tensor);
    for (Piece& piece : copy.pieces) {
      piece.array.replace(at, dense.size(), "experts.");
      piece.place.insert(piece.place.begin(), expert);
    }
  }
  return copies;
}

std::vector<double> router_weights(const architecture::ArraySpec& router, std::uint32_t number,
                                   std::uint64_t seed) {
  const RandomKey key{seed, Purpose::initialisation, number, 0};
  std::vector<double> values(static_cast<std::size_t>(router.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Words4 words = philox(key, i / 2);
    const double u = uniform_from_word(words.w[i % 2 * 2]);
    const double v = uniform_from_word(words.w[i % 2 * 2 + 1]);
    values[i] = router.standard_deviation * std::sqrt(-2 * std::log(u)) *
                std::cos(2 * std::numbers::pi * v);
  }
  return values;
}

}  // namespace trireme::hugging_face
