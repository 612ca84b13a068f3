// The keys of [adapter].
#include <trireme/deck/entry.hpp>

#include <cmath>

namespace trireme::deck {

double AdapterConfig::factor() const {
  const auto r = static_cast<double>(rank);
  return alpha / (scaling == AdapterScaling::rslora ? std::sqrt(r) : r);
}

void adapter_keys(std::vector<Entry>& out) {
  const auto key = [&out](const char* name, KeyType type, auto AdapterConfig::*member,
                          const char* help, Effect effect) -> Entry& {
    return out.emplace_back("adapter", name, type, help, effect)
        .in(&Config::model, &ModelConfig::adapter, member);
  };
  const auto words = [](auto all) { return std::vector<std::string_view>(all.begin(), all.end()); };
  key("kind", KeyType::choice, &AdapterConfig::kind,
      "adapters of the products in targets: none, low-rank updates (lora; Hu et al. 2021), or "
      "these with a trained magnitude of each output (dora; Liu et al. 2024); all other weights "
      "are "
      "then frozen",
      Effect::adapter)
      .words(words(names<AdapterKind>()))
      .otherwise(std::string("none"));
  key("rank", KeyType::integer, &AdapterConfig::rank, "rank r of the updates", Effect::adapter)
      .at_least(1)
      .at_most(65536)
      .otherwise(std::int64_t{8});
  key("alpha", KeyType::number, &AdapterConfig::alpha,
      "the updates are multiplied with alpha / rank", Effect::adapter)
      .above(0)
      .otherwise(16.0);
  key("scaling", KeyType::choice, &AdapterConfig::scaling,
      "the updates' factor: alpha / rank (standard), or alpha / √rank (rslora; Kalajdzievski 2023)",
      Effect::adapter)
      .words(words(names<AdapterScaling>()))
      .otherwise(std::string("standard"));
  key("dropout", KeyType::number, &AdapterConfig::dropout,
      "fraction of the elements of a product's input that its adapter does not see",
      Effect::training)
      .from(0)
      .below(1)
      .otherwise(0.0);
  key("targets", KeyType::list, &AdapterConfig::targets,
      "products with adapters; see docs/fine_tuning.md for PEFT's names of them", Effect::adapter)
      .words({"attention.query", "attention.key_value", "attention.query_key_value",
              "attention.output", "feed_forward.up", "feed_forward.gate_up", "feed_forward.down"})
      .derive(
          [](Config& c) {
            if (c.model.adapter.present())
              c.model.adapter.targets = {"attention.query", "attention.key_value"};
          },
          "attention.query and attention.key_value");
  key("also_trained", KeyType::list, &AdapterConfig::also_trained,
      "patterns of the names of other arrays that are trained, as in optimizer.frozen",
      Effect::state)
      .otherwise(Words{});
}

}  // namespace trireme::deck
