#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/plan/auto_layout.hpp>
#include <trireme/plan/search.hpp>

namespace trireme::plan {

void choose_layout(deck::Deck& deck, std::int64_t ranks, const Machine& given) {
  deck::expect_layout(deck, ranks);
  const std::string missing = given.time_mistake(deck.config.precision, ranks);
  const Machine machine = missing.empty() ? given : with_usual_speeds(given);
  constexpr std::size_t played = 20;
  const SearchResult found = search_layouts(deck, ranks, machine, {.best = played, .of_front = 1});
  const Candidate& best = found.candidates.front();
  deck::Deck chosen = deck;
  best.layout.set(chosen.config);
  const std::string reason = text(
      "the shortest step of ", with_commas(found.evaluated), " layouts, ",
      fixed(best.time.seconds, best.time.seconds < 1 ? 4 : 2), " s predicted",
      missing.empty() ? text(" for ", machine.called()) : " with the speeds of a typical machine");
  deck::set_layout(deck, deck::layout_overrides(chosen), reason);
}

}  // namespace trireme::plan
