#include <trireme/deck/deck.hpp>

#include <trireme/deck/value.hpp>

namespace trireme::deck {

std::vector<Difference> differences(const Deck& stored, const Deck& current) {
  std::vector<Difference> found;
  for (const Key& key : keys()) {
    const Value before = key.load(stored.config);
    const Value now = key.load(current.config);
    if (before != now)
      found.push_back({key.section, key.name, literal(key, before), literal(key, now),
                       current.where(key.section, key.name), key.effect});
  }
  return found;
}

}  // namespace trireme::deck
