// The fields of batches, the terms of the loss, and the places of their sums and of the counts of
// experts.
#include <trireme/architecture/objective.hpp>

#include <trireme/architecture/ends.hpp>
#include <trireme/base/check.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace trireme::architecture {
namespace {

void add_fields(TrainingObjective& o, const BlockDescription& part, const deck::ModelConfig& m,
                bool at_head) {
  for (const Tensor& t : part.tensors)
    if (t.home == Home::batch)
      o.fields.push_back({t.name, rows_per_sample(t.rows, m), at_head, t.rows});
}

/// Names of the losses of further predicted tokens, as many as [model] predicts permits.
constexpr std::array<std::string_view, deck::most_predicts - 1> module_losses{
    "predict_loss_2", "predict_loss_3", "predict_loss_4", "predict_loss_5",
    "predict_loss_6", "predict_loss_7", "predict_loss_8"};

/// Position of a layer among those with experts.
std::int64_t place_of(std::int64_t layer, const std::vector<std::int64_t>& expert_layers) {
  const auto found = std::ranges::find(expert_layers, layer);
  check(found != expert_layers.end(), "layer ", layer, " has no experts");
  return found - expert_layers.begin();
}

}  // namespace

std::optional<std::size_t> TrainingObjective::find(std::string_view name) const {
  const auto found = std::ranges::find(fields, name, &BatchField::name);
  if (found == fields.end()) return std::nullopt;
  return static_cast<std::size_t>(found - fields.begin());
}

std::size_t TrainingObjective::field(std::string_view name) const {
  const auto number = find(name);
  check(number.has_value(), "the objective's batches have no field ", name);
  return *number;
}

std::int64_t TrainingObjective::head_losses() const {
  return std::ranges::count(losses, false, &LossTerm::of_layers);
}

std::int64_t TrainingObjective::term_sums() const {
  std::int64_t sums = 0;
  for (const LossTerm& term : losses) sums += term.parts;
  return sums;
}

std::int64_t TrainingObjective::loss_sums() const {
  return term_sums() + std::ssize(expert_layers) * (experts + (drops ? 1 : 0));
}

std::int64_t TrainingObjective::expert_sum(std::int64_t layer) const {
  return term_sums() + place_of(layer, expert_layers) * experts;
}

std::int64_t TrainingObjective::dropped_sum(std::int64_t layer) const {
  check(drops, "the objective drops no choices");
  return term_sums() + std::ssize(expert_layers) * experts + place_of(layer, expert_layers);
}

std::vector<double> TrainingObjective::dropped_choices(std::span<const double> sums) const {
  std::vector<double> fractions;
  if (!drops) return fractions;
  const std::vector<std::vector<std::int64_t>> tokens = expert_tokens(sums);
  for (std::size_t i = 0; i < expert_layers.size(); ++i) {
    const auto all =
        static_cast<double>(std::accumulate(tokens[i].begin(), tokens[i].end(), std::int64_t{0}));
    const double dropped = sums[static_cast<std::size_t>(dropped_sum(expert_layers[i]))];
    fractions.push_back(all > 0 ? dropped / all : 0);
  }
  return fractions;
}

std::vector<std::vector<std::int64_t>> TrainingObjective::expert_tokens(
    std::span<const double> sums) const {
  std::vector<std::vector<std::int64_t>> tokens;
  for (const std::int64_t layer : expert_layers) {
    const auto mine = sums.subspan(static_cast<std::size_t>(expert_sum(layer)),
                                   static_cast<std::size_t>(experts));
    auto& counts = tokens.emplace_back();
    for (const double n : mine) counts.push_back(std::llround(n));
  }
  return tokens;
}

std::vector<double> TrainingObjective::expert_loads(std::span<const double> sums) const {
  std::vector<double> loads;
  for (const std::vector<std::int64_t>& counts : expert_tokens(sums)) {
    const auto all =
        static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
    const double mean = all / static_cast<double>(experts);
    loads.push_back(all > 0 ? static_cast<double>(std::ranges::max(counts)) / mean : 0);
  }
  return loads;
}

std::int64_t TrainingObjective::loss_sum(std::string_view name) const {
  std::int64_t first = 0;
  for (const LossTerm& term : losses) {
    if (term.name == name) return first;
    first += term.parts;
  }
  throw Error(text("the objective has no loss ", name));
}

std::vector<double> TrainingObjective::terms_of(std::span<const double> sums) const {
  std::vector<double> terms;
  for (const LossTerm& term : losses) {
    double& sum = terms.emplace_back(0);
    for (const double part : sums.first(static_cast<std::size_t>(term.parts))) sum += part;
    sums = sums.subspan(static_cast<std::size_t>(term.parts));
  }
  return terms;
}

std::int64_t TrainingObjective::numbers_per_sample() const {
  std::int64_t sum = 0;
  for (const BatchField& field : fields) sum += field.per_sample;
  return sum;
}

TrainingObjective objective_of(const deck::ModelConfig& m) {
  TrainingObjective o;
  add_fields(o, describe_embedding(m), m, false);
  add_fields(o, describe_head(m), m, true);
  if (m.packs_documents()) o.fields.push_back({"positions", m.sequence, false, Rows::tokens, true});
  if (m.vision.present())
    o.fields.push_back({std::string(image_rows_field), m.sequence, false, Rows::tokens, true});
  if (m.vision.present() && m.vision.sees_whole_images())
    o.fields.push_back({std::string(key_end_field), m.sequence, false, Rows::tokens, true});
  if (m.pads_samples() && m.experts.present())
    o.fields.push_back({"sample_tokens", m.sequence, false, Rows::tokens, true});
  if (m.reads_pairs()) {
    for (const char* const name : {"source_begin", "source_end"})
      o.fields.push_back({name, m.encoder.sequence, false, Rows::source_tokens, true});
    for (const char* const name : {"key_begin", "key_end"})
      o.fields.push_back({name, m.sequence, false, Rows::tokens, true});
  }
  o.losses = {{"loss", m.predicts_masked_tokens() ? "masked token" : "token", m.targets()}};
  o.losses.front().of_targets = true;
  if (m.has_sentence_head()) o.losses.push_back({"pair_loss", "pair", 1});
  for (std::int64_t module = 0; module < m.modules(); ++module) {
    LossTerm& term = o.losses.emplace_back(
        LossTerm{module_losses.at(static_cast<std::size_t>(module)), "token", m.targets()});
    term.of_targets = true;
    term.apart = true;
  }
  if (m.experts.balances()) o.losses.push_back({balance_loss, "sample", 1, m.all_layers(), true});
  if (m.experts.limits_logits())
    o.losses.push_back({router_z_loss, "routed token", m.sequence, m.all_layers(), true});
  for (std::int64_t layer = 0; layer < m.all_layers(); ++layer)
    if (m.has_experts(layer)) o.expert_layers.push_back(layer);
  o.experts = m.experts.number;
  o.drops = m.experts.present() && m.experts.drops(m.sequence);
  return o;
}

}  // namespace trireme::architecture
