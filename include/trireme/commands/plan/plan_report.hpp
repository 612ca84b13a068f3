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

/// The result of `trireme plan`, and other input of its reports.
struct PlanReport {
  deck::Deck deck;  ///< deck of the search; of the layout's keys, only fixed keys are in `places`
  std::int64_t ranks = 1;
  plan::Machine machine;
  std::string assumption;  ///< a sentence about speeds that no file provides; "": none
  plan::SearchResult found;
  std::size_t top = 5;                 ///< number of candidates shown in detail
  std::optional<plan::Candidate> own;  ///< layout that the deck's file describes; empty: none
  std::string own_problem;             ///< reason why the deck's layout cannot be used; "": none

  std::size_t shown() const { return std::min(top, found.candidates.size()); }
  double tokens_per_second(const plan::Candidate& c) const;
  /// Model FLOPs utilization (MFU): model FLOPs per second, divided by the peak of all ranks.
  double utilization(const plan::Candidate& c) const;
};

/// The keys of a layout as command-line overrides, separated by spaces; `expert` only for models
/// with experts.
std::string overrides_of(const PlanReport& report, const plan::Layout& layout);
/// Name of a layout in tables: "data 6 · pipeline 64 · tensor 8, micro 1, 1f1b, recompute full".
std::string name_of_layout(const plan::Layout& layout);

std::string plan_text(const PlanReport& report);
std::string plan_json(const PlanReport& report);
/// A self-contained HTML page.
std::string plan_page(const PlanReport& report);

/// Step time, tokens per second, MFU, idle share and memory of a candidate, as text.
std::vector<std::string> figures(const PlanReport& report, const plan::Candidate& c);

}  // namespace trireme::commands
