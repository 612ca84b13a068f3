#include <trireme/deck/deck.hpp>

#include <trireme/deck/value.hpp>

#include <algorithm>

namespace trireme::deck {
namespace {

/// Why a checkpoint's model fits one length of samples only; "" if it fits both.
std::string reason_for_one_sequence(const ModelConfig& stored, const ModelConfig& current) {
  if (current.positions == Positions::learned)
    return "its learned positions have a row for each token of a sample";
  if (current.rope_scaling != RotaryScalingKind::dynamic) return "";
  const std::int64_t original = current.rope_original_sequence;
  if (std::max(stored.sequence, original) == std::max(current.sequence, original)) return "";
  return "rope_scaling = \"dynamic\" computes the rotary positions from it";
}

}  // namespace

std::vector<Difference> differences(const Deck& stored, const Deck& current) {
  std::vector<Difference> found;
  for (const Key& key : keys()) {
    const Value before = key.load(stored.config);
    const Value now = key.load(current.config);
    if (before == now) continue;
    // Only 2bw, and servers with stale weights or an update for each worker, change the numbers;
    // the other schedules and strategies give the same ones.
    const std::string name = key.full_name();
    const bool delays =
        (name == "parallel.schedule" &&
         stored.config.parallel.overlaps_steps() != current.config.parallel.overlaps_steps()) ||
        name == "parallel.staleness" || name == "parallel.updates";
    const std::string reason =
        name == "model.sequence"
            ? reason_for_one_sequence(stored.config.model, current.config.model)
            : "";
    const bool numbers = delays || (name == "model.sequence" && reason.empty());
    found.push_back({key.section, key.name, literal(key, before), literal(key, now),
                     current.where(key.section, key.name), numbers ? Effect::numbers : key.effect,
                     reason});
  }
  return found;
}

}  // namespace trireme::deck
