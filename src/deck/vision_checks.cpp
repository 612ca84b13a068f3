// Contradictions between the keys of [vision], and between them and other keys.
#include <trireme/deck/vision_checks.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/table.hpp>

namespace trireme::deck {
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
  else if (sizes && v.tokens() > m.sequence)
    report(deck.cite("model", "sequence"), " is less than the ", v.tokens(),
           " tokens of an image with ", deck.cite("vision", "image"), " and ",
           deck.cite("vision", "patch"), "; choose a longer sequence, or a larger patch");
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
  excludes("run", "prompts", !c.run.prompts.empty(), "prompts = \"\"");
  return mistakes;
}

}  // namespace trireme::deck
