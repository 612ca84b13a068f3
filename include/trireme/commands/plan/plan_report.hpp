#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/search.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::commands {

/// The result of `trireme plan`, and what its reports need besides.
struct PlanReport {
  deck::Deck deck;  ///< as the search used it: only the fixed keys are set
  std::int64_t ranks = 1;
  plan::Machine machine;
  std::string assumption;  ///< a sentence about speeds that no file gives; "": none
  plan::SearchResult found;
  std::size_t top = 5;                 ///< candidates in detail
  std::optional<plan::Candidate> own;  ///< the deck's own layout
  std::string own_problem;             ///< why there is none

  std::size_t shown() const { return std::min(top, found.candidates.size()); }
  double tokens_per_second(const plan::Candidate& c) const;
  /// Model FLOPs in relation to the peak of all ranks.
  double utilization(const plan::Candidate& c) const;
};

/// All keys of a layout as overrides of any deck, separated by blanks.
std::string overrides_of(const plan::Layout& layout);
/// "data 6 · pipeline 64 · tensor 8, micro 1, 1f1b, recompute full".
std::string name_of_layout(const plan::Layout& layout);

std::string plan_text(const PlanReport& report);
std::string plan_json(const PlanReport& report);
/// A self-contained HTML page.
std::string plan_page(const PlanReport& report);

/// Step time, tokens per second, MFU, idle share and memory of a candidate.
std::vector<std::string> figures(const PlanReport& report, const plan::Candidate& c);

}  // namespace trireme::commands
