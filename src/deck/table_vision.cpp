// The keys of [vision], and contradictions between them and with other keys.
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/entry.hpp>
#include <trireme/deck/model_checks.hpp>
#include <trireme/deck/table.hpp>

#include <cstdint>

namespace trireme::deck {

using Int = std::int64_t;

namespace {
constexpr Int vision_size_limit = 1 << 20;  // keeps products of sizes far from 2^63
}  // namespace

void vision_keys(std::vector<Entry>& out) {
  const auto key = [&out](const char* name, KeyType type, auto VisionConfig::*member,
                          const char* help, Effect effect = Effect::model) -> Entry& {
    return out.emplace_back("vision", name, type, help, effect)
        .in(&Config::model, &ModelConfig::vision, member);
  };
  const auto size = [&](const char* name, Int VisionConfig::*member, const char* help,
                        Int most = vision_size_limit) -> Entry& {
    return key(name, KeyType::integer, member, help).at_least(0).at_most(most);
  };
  key("family", KeyType::choice, &VisionConfig::family,
      "published encoder: clip has a class token, a norm before its layers and the quick form of "
      "GELU; siglip has none of them, a bias of patches and the form by tanh; gemma3 is siglip "
      "with a "
      "norm after its layers, a projector of means of patches, and attention in both directions "
      "between the tokens of an image")
      .words(words_of_keys<VisionFamily>())
      .otherwise(std::string("clip"));
  size("layers", &VisionConfig::layers,
       "layers of the encoder whose results the model reads; 0 means no images", 65536)
      .otherwise(Int{0});
  size("hidden", &VisionConfig::hidden, "width of the encoder's residual stream").otherwise(Int{0});
  size("heads", &VisionConfig::heads, "attention heads of the encoder").otherwise(Int{0});
  size("feed_forward", &VisionConfig::feed_forward, "inner width of its feed-forward layers",
       4 * vision_size_limit)
      .derive([](Config& c) { c.model.vision.feed_forward = 4 * c.model.vision.hidden; },
              "4 · vision.hidden");
  size("image", &VisionConfig::image, "side of an image; token files state the same", 16384)
      .unit("pixels")
      .otherwise(Int{0});
  size("patch", &VisionConfig::patch, "side of a patch, a divisor of image", 16384)
      .unit("pixels")
      .otherwise(Int{0});
  size("pool", &VisionConfig::pool,
       "side of the squares of patches whose means are the tokens of an image, with family gemma3; "
       "a "
       "divisor of image / patch",
       16384)
      .unit("patches")
      .at_least(1)
      .derive([](Config& c) { c.model.vision.pool = c.model.vision.pools() ? 4 : 1; },
              "4 for gemma3, otherwise 1");
  key("images", KeyType::integer, &VisionConfig::images,
      "most images of a sample; memory and time are those of this number", Effect::numbers)
      .at_least(1)
      .at_most(4096)
      .otherwise(Int{1});
}

namespace {

/// Messages about keys that have no effect without images.
std::vector<std::string> unused_keys(const Deck& deck) {
  std::vector<std::string> mistakes;
  Config unused = deck.config;
  unused.model.vision = {};
  for (const Key& key : keys())
    if (key.section == "vision" && key.load(deck.config) != key.load(unused))
      mistakes.push_back(text(deck.cite("vision", key.name), " has no effect with ",
                              deck.cite("vision", "layers"), "; set layers, or remove ", key.name));
  return mistakes;
}

}  // namespace

std::vector<std::string> vision_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  const ModelConfig& m = c.model;
  const VisionConfig& v = m.vision;
  if (!v.present()) return unused_keys(deck);
  std::vector<std::string> mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const std::string layers = deck.cite("vision", "layers");
  bool sizes = true;
  for (const auto& [key, size] :
       {std::pair{"hidden", v.hidden}, {"heads", v.heads}, {"image", v.image}, {"patch", v.patch}})
    if (size == 0) {
      report(layers, " needs ", deck.cite("vision", key), " to be 1 or more; set it");
      sizes = false;
    }
  if (sizes && v.hidden % v.heads != 0)
    report(deck.cite("vision", "heads"), " does not divide ", deck.cite("vision", "hidden"),
           "; choose ", choices(divisors(v.hidden), v.heads), " heads");
  if (sizes && v.image % v.patch != 0)
    report(deck.cite("vision", "patch"), " does not divide ", deck.cite("vision", "image"),
           "; choose a patch of ", choices(divisors(v.image), v.patch));
  else if (sizes && !v.pools() && v.pool != 1)
    report(deck.cite("vision", "pool"), " has no effect with ", deck.cite("vision", "family"),
           "; choose pool = 1, or family = \"gemma3\"");
  else if (sizes && v.patches_per_side() % v.pool != 0)
    report(deck.cite("vision", "pool"), " does not divide the ", v.patches_per_side(),
           " patches of a side of ", deck.cite("vision", "image"), "; choose ",
           choices(divisors(v.patches_per_side()), v.pool));
  else if (sizes && v.tokens() > m.sequence)
    report(deck.cite("model", "sequence"), " is less than the ", v.tokens(),
           " tokens of an image with ", deck.cite("vision", "image"), " and ",
           deck.cite("vision", "patch"), "; choose a longer sequence, or a larger ",
           v.pools() ? "pool" : "patch");
  const auto excludes = [&](const char* section, const char* key, bool excluded,
                            const char* remedy) {
    if (excluded)
      report(layers, " cannot be combined with ", deck.cite(section, key), "; choose ", remedy);
  };
  const ParallelConfig& p = c.parallel;
  excludes("encoder", "layers", m.encoder.present(), "layers = 0 of one of them");
  excludes("model", "objective", !m.predicts_next_token(), "objective = \"next_token\"");
  excludes("model", "mask", !m.causal(), "mask = \"causal\"");
  excludes("model", "norm_placement", m.norm_placement == NormPlacement::post,
           "norm_placement = \"pre\"");
  excludes("model", "shared_layers", m.shared_layers > 0, "shared_layers = 0");
  excludes("model", "predicts", m.modules() > 0, "predicts = 1");
  excludes("data", "packing", m.packs_documents(), "packing = \"none\"");
  excludes("parallel", "context", p.context > 1, "context = 1");
  excludes("parallel", "vocabulary", p.vocabulary != VocabularyPlacement::stage,
           "vocabulary = \"stage\"");
  excludes("parallel", "layout", p.layout == LayoutMode::automatic, "layout = \"given\"");
  excludes("parallel", "offload", p.offload == Offload::activations || p.offload == Offload::both,
           "offload = \"none\" or \"optimizer\"");
  excludes("precision", "products", c.precision.products == Products::fp8,
           "products = \"compute\"");
  return mistakes;
}

}  // namespace trireme::deck
