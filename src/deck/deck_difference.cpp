#include <trireme/deck/deck.hpp>

#include <trireme/deck/sequence_effect.hpp>
#include <trireme/deck/value.hpp>

namespace trireme::deck {

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
    Effect effect = delays ? Effect::training : key.effect;
    if (key.effect == Effect::length)
      effect = effect_of_sequence(stored.config.model, current.config.model).effect;
    found.push_back({key.section, key.name, literal(key, before), literal(key, now),
                     current.where(key.section, key.name), effect});
  }
  return found;
}

}  // namespace trireme::deck
