// The fields of batches, the terms of the loss, and the places of their sums and of the counts of
// experts.
#include <trireme/architecture/objective.hpp>

#include <trireme/architecture/ends.hpp>
#include <trireme/base/check.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

void add_fields(TrainingObjective& o, const BlockDescription& part, const deck::ModelConfig& m,
                bool at_head) {
  for (const Tensor& t : part.tensors)
    if (t.home == Home::batch)
      o.fields.push_back({t.name, rows_per_sample(t.rows, m), at_head, t.rows});
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
  return term_sums() + std::ssize(expert_layers) * experts;
}

std::int64_t TrainingObjective::expert_sum(std::int64_t layer) const {
  const auto found = std::ranges::find(expert_layers, layer);
  check(found != expert_layers.end(), "layer ", layer, " has no experts");
  return term_sums() + (found - expert_layers.begin()) * experts;
}

std::vector<double> TrainingObjective::expert_loads(std::span<const double> sums) const {
  std::vector<double> loads;
  auto counts = sums.subspan(static_cast<std::size_t>(term_sums()));
  for (std::size_t layer = 0; layer < expert_layers.size(); ++layer) {
    const auto mine = counts.first(static_cast<std::size_t>(experts));
    counts = counts.subspan(mine.size());
    double all = 0;
    for (const double n : mine) all += n;
    const double mean = all / static_cast<double>(experts);
    loads.push_back(all > 0 ? *std::ranges::max_element(mine) / mean : 0);
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
  o.losses = {{"loss", m.predicts_masked_tokens() ? "masked token" : "token", m.targets()}};
  if (m.has_sentence_head()) o.losses.push_back({"pair_loss", "pair", 1});
  if (m.experts.balances()) o.losses.push_back({balance_loss, "sample", 1, m.layers, true});
  if (m.experts.limits_logits())
    o.losses.push_back({router_z_loss, "routed token", m.sequence, m.layers, true});
  for (std::int64_t layer = 0; layer < m.layers; ++layer)
    if (m.experts.in_layer(layer)) o.expert_layers.push_back(layer);
  o.experts = m.experts.number;
  return o;
}

}  // namespace trireme::architecture
