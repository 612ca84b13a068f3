// Search for the fastest program: named schedules and list schedules, compared by virtual time.
#include <trireme/schedule/search.hpp>

#include <trireme/base/check.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/list_schedule.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/schedule/repetition.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme::schedule {
namespace {

constexpr std::int64_t passes_tried = 6'000'000;  ///< budget of passes for all list schedules
constexpr std::size_t lists_simulated = 3;
constexpr double difference = 1e-9;  ///< relative difference below which times are equal

/// The named schedules of the layout without an overlap of steps. The schedules that save the
/// fewest micro-batches are first.
std::vector<ScheduleKind> named_schedules(const ProgramLayout& layout) {
  std::vector<std::pair<int, ScheduleKind>> all;
  for (const Schedule& schedule : schedules()) {
    const bool fits = schedule.generate != nullptr && schedule.accepts(layout.chunks) &&
                      schedule.placement == layout.placement;
    if (!fits || traits_of(schedule.kind).overlaps_steps) continue;
    int slots = 0;
    for (const RowCounts& rank : row_counts(schedule.kind, layout)) slots += rank.slots;
    all.emplace_back(slots, schedule.kind);
  }
  std::ranges::stable_sort(all, {}, &std::pair<int, ScheduleKind>::first);
  std::vector<ScheduleKind> kinds;
  for (const auto& [slots, kind] : all) kinds.push_back(kind);
  return kinds;
}

class Search {
 public:
  Search(const ProgramLayout& layout, const Cost& cost, std::span<const int> slots,
         const LowerOptions& lowering)
      : layout_(layout),
        cost_(cost),
        costs_(stage_costs(layout, cost)),
        lowering_(lowering),
        budget_(passes_tried) {
    for (const int s : slots) slots_.push_back(std::min(s, most_slots(layout)));
  }

  FoundProgram run() {
    for (const ScheduleKind kind : named_schedules(layout_)) {
      Program program = generate(kind, layout_);
      if (fits(program)) simulate_program(std::move(program), std::string(name_of(kind)));
    }
    std::vector<Tried> tried = best_rules();
    for (Tried& t : tried) refine(t);
    for (const Tried& t : tried)
      simulate_program(list_schedule(layout_, costs_, t.rule).program, "list");
    return std::move(best_);
  }

 private:
  struct Tried {
    ListRule rule;
    Seconds seconds = 0;
  };

  bool fits(const Program& program) const {
    for (Rank r = 0; r < layout_.ranks; ++r)
      if (slots_needed(program, r) > slots_[static_cast<std::size_t>(r)]) return false;
    return true;
  }

  void simulate_program(Program program, std::string origin) {
    lower(program, lowering_);
    const Simulation simulation = simulate(program, cost_);
    check(simulation.mistakes.empty(), "the program of ", origin,
          " cannot run: ", simulation.mistakes.empty() ? "" : simulation.mistakes.front());
    Seconds end = 0;
    for (const Event& e : simulation.timeline.events) end = std::max(end, e.end);
    if (!best_.origin.empty() && end >= best_.seconds * (1 - difference)) return;
    best_ = {std::move(program), end, std::move(origin)};
  }

  /// Limits on saved micro-batches, by rank, that the rules try.
  std::vector<std::vector<int>> shapes() const {
    const int p = layout_.ranks, v = layout_.chunks;
    std::vector<std::vector<int>> all{slots_};
    const auto add = [&](auto wanted) {
      std::vector<int> shape;
      for (Rank r = 0; r < p; ++r)
        shape.push_back(std::clamp(wanted(r), v, slots_[static_cast<std::size_t>(r)]));
      if (std::ranges::find(all, shape) == all.end()) all.push_back(std::move(shape));
    };
    add([&](Rank r) { return p - r + (v - 1) * p; });
    add([&](Rank) { return v * p; });
    add([&](Rank) { return (3 * v * p + 1) / 2; });
    return all;
  }

  std::vector<ListRule> rules() const {
    std::vector<ListRule> all;
    for (const std::vector<int>& shape : shapes())
      for (const bool forward_first : {false, true})
        for (const bool deepest_first : {true, false}) {
          if (!deepest_first && layout_.chunks == 1) continue;
          all.push_back({false, forward_first, deepest_first, false, 0, shape});
          all.push_back({true, forward_first, deepest_first, true, 0, shape});
          for (const double patience : {0.0, 0.5, 1.0})
            all.push_back({true, forward_first, deepest_first, false, patience, shape});
        }
    return all;
  }

  /// The rules whose list schedules take the least time. Long programs are compared with fewer
  /// micro-batches.
  std::vector<Tried> best_rules() {
    const std::vector<ListRule> all = rules();
    const auto passes_of = [this](int micro_batches) {
      return std::int64_t{3} * layout_.stages() * micro_batches;
    };
    ProgramLayout shorter = layout_;
    const auto share = budget_ / 2 / static_cast<std::int64_t>(all.size());
    const std::int64_t affordable = share / passes_of(1);
    shorter.micro_batches = static_cast<int>(std::min<std::int64_t>(
        layout_.micro_batches, std::max<std::int64_t>(affordable, 2 * layout_.ranks)));
    std::vector<Tried> tried;
    for (const ListRule& rule : all) tried.push_back({rule, seconds(shorter, rule)});
    std::ranges::stable_sort(tried, {}, &Tried::seconds);
    if (tried.size() > lists_simulated) tried.resize(lists_simulated);
    return tried;
  }

  Seconds seconds(const ProgramLayout& layout, const ListRule& rule) {
    budget_ -= std::int64_t{3} * layout.stages() * layout.micro_batches;
    return list_schedule(layout, costs_, rule).seconds;
  }

  /// Changes the slots of one rank at a time while this reduces the time and the budget lasts.
  void refine(Tried& t) {
    t.seconds = seconds(layout_, t.rule);
    for (bool better = true; better && budget_ > 0;) {
      better = false;
      for (std::size_t r = 0; r < slots_.size(); ++r)
        for (const int change : {-2, -1, 1, 2}) {
          ListRule rule = t.rule;
          rule.slots[r] = std::clamp(rule.slots[r] + change, layout_.chunks, slots_[r]);
          if (rule == t.rule || budget_ <= 0) continue;
          const Seconds changed = seconds(layout_, rule);
          if (changed >= t.seconds * (1 - difference)) continue;
          t = {std::move(rule), changed};
          better = true;
        }
    }
  }

  const ProgramLayout& layout_;
  const Cost& cost_;
  const StageCosts costs_;
  const LowerOptions& lowering_;
  std::vector<int> slots_;
  std::int64_t budget_;
  FoundProgram best_;
};

}  // namespace

int most_slots(const ProgramLayout& layout) {
  return std::min(2 * layout.ranks, layout.micro_batches) * layout.chunks;
}

FoundProgram search_program(const ProgramLayout& layout, const Cost& cost,
                            std::span<const int> slots, const LowerOptions& lowering) {
  check(slots.size() == static_cast<std::size_t>(layout.ranks), slots.size(),
        " numbers of slots for ", layout.ranks, " ranks");
  return Search(layout, cost, slots, lowering).run();
}

}  // namespace trireme::schedule
