#include <trireme/plan/auto_layout.hpp>

#include <trireme/base/check.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/plan/search.hpp>

namespace trireme::plan {

void choose_layout(deck::Deck& deck, std::int64_t ranks, const Machine& given) {
  deck::expect_layout(deck, ranks);
  const bool usual = given.file.empty();
  const Machine machine = usual ? with_usual_speeds(given) : given;
  const std::string missing = machine.time_mistake(deck.config.precision, ranks);
  check_usage(missing.empty(), machine.called(), " does not give ", missing, ", without which ",
              deck.cite("parallel", "layout"),
              " cannot compare layouts; add it to the file, or leave [parallel] machine out");
  const SearchResult found = search_layouts(deck, ranks, machine, {.best = 10, .of_front = 0});
  deck::Deck chosen = deck;
  found.candidates.front().layout.set(chosen.config);
  if (deck.config.parallel.recompute == Recompute::automatic &&
      deck::is_fixed(deck, "parallel", "recompute"))
    chosen.config.parallel.recompute = Recompute::automatic;  // decided later
  const std::string speeds = usual ? "typical speeds, because [parallel] machine is not set"
                                   : text("the speeds of ", machine.called());
  deck::set_layout(deck, deck::layout_overrides(chosen),
                   text("the fastest of ", found.evaluated,
                        found.evaluated == 1 ? " layout" : " layouts", " by ", speeds));
}

}  // namespace trireme::plan
