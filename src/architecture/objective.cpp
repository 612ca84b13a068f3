#include <trireme/architecture/objective.hpp>
#include <trireme/base/check.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

constexpr bool at_head = true;

TrainingObjective next_token(const deck::ModelConfig& m) {
  return {{{"tokens", m.sequence}, {"targets", m.sequence, at_head}},
          {{"loss", "token", m.sequence}},
          m.sequence};
}

/// Devlin et al. 2019, arXiv 1810.04805, section 3.1.
TrainingObjective masked_token(const deck::ModelConfig& m) {
  const std::int64_t masked = m.targets();
  const std::int64_t first_tokens = m.has_sentence_head() ? 1 : 0;
  TrainingObjective o{{{"tokens", m.sequence},
                       {"segments", m.sequence},
                       {"targets", masked, at_head},
                       {"rows", masked + first_tokens, at_head}},
                      {{"loss", "masked token", masked}},
                      masked + first_tokens};
  if (m.has_sentence_head()) {
    o.fields.push_back({"pairs", 1, at_head});
    o.losses.push_back({"pair_loss", "pair", 1});
  }
  return o;
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

std::int64_t TrainingObjective::numbers_per_sample() const {
  std::int64_t sum = 0;
  for (const BatchField& field : fields) sum += field.per_sample;
  return sum;
}

TrainingObjective objective_of(const deck::ModelConfig& model) {
  switch (model.objective) {
    case Objective::next_token:
      return next_token(model);
    case Objective::masked_token:
      return masked_token(model);
  }
  return {};
}

}  // namespace trireme::architecture
