// The table of schedules, and the properties of a schedule that its programs show.
#include <trireme/schedule/schedules.hpp>

#include <trireme/base/check.hpp>
#include <trireme/schedule/generate.hpp>

#include <algorithm>
#include <array>

namespace trireme::schedule {
namespace {

constexpr auto v_placement = StagePlacement::v;

// Searches of layouts do not try gpipe and dualpipe-v: with equal stages, 1f1b and zb-v are idle
// for no longer and save fewer micro-batches.
constexpr std::array schedule_table{
    Schedule{
        .kind = ScheduleKind::gpipe, .word = "gpipe", .generate = gpipe_program, .compared = false},
    Schedule{.kind = ScheduleKind::one_forward_one_backward,
             .word = "1f1b",
             .generate = alternating_program},
    Schedule{.kind = ScheduleKind::interleaved,
             .word = "interleaved",
             .generate = interleaved_program,
             .least_chunks = 2,
             .most_chunks = any_chunks},
    Schedule{.kind = ScheduleKind::zb_h1, .word = "zb-h1", .generate = zb_h1_program},
    Schedule{.kind = ScheduleKind::zb_v,
             .word = "zb-v",
             .generate = zb_v_program,
             .least_chunks = 2,
             .most_chunks = 2,
             .placement = v_placement},
    Schedule{.kind = ScheduleKind::v_half,
             .word = "v-half",
             .generate = v_half_program,
             .least_chunks = 2,
             .most_chunks = 2,
             .placement = v_placement},
    Schedule{.kind = ScheduleKind::v_min,
             .word = "v-min",
             .generate = v_min_program,
             .least_chunks = 2,
             .most_chunks = 2,
             .placement = v_placement},
    Schedule{.kind = ScheduleKind::dualpipe_v,
             .word = "dualpipe-v",
             .generate = dualpipe_v_program,
             .least_chunks = 2,
             .most_chunks = 2,
             .placement = v_placement,
             .compared = false},
    Schedule{.kind = ScheduleKind::two_bw, .word = "2bw", .generate = two_bw_program},
    Schedule{.kind = ScheduleKind::automatic, .word = "auto", .most_chunks = any_chunks},
    Schedule{.kind = ScheduleKind::file, .word = "file", .most_chunks = any_chunks},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < schedule_table.size(); ++i)
    if (schedule_table[i].kind != static_cast<ScheduleKind>(i)) return false;
  return true;
}
static_assert(in_order() && is_enumerator<static_cast<ScheduleKind>(schedule_table.size() - 1)>() &&
                  !is_enumerator<static_cast<ScheduleKind>(schedule_table.size())>(),
              "the table has a row for each ScheduleKind, in its order");

constexpr std::array words_of_schedules = [] {
  std::array<std::string_view, schedule_table.size()> all;
  std::ranges::transform(schedule_table, all.begin(), &Schedule::word);
  return all;
}();

/// The properties as the program of two micro-batches on two ranks shows them.
Traits found_traits(const Schedule& schedule) {
  Traits traits;
  if (schedule.generate == nullptr) return traits;
  ProgramLayout layout{2, 2, schedule.least_chunks};
  layout.placement = schedule.placement;
  const Program program = generate(schedule.kind, layout);
  const auto is_backward = [](Op op) { return op == Op::backward || op == Op::backward_input; };
  for (const std::vector<Instr>& row : program.ranks)
    for (const Instr& i : row) traits.splits_backward |= i.op == Op::backward_input;
  traits.overlaps_steps = program.layout.overlaps_steps();
  const std::vector<Instr>& last =
      program.ranks[static_cast<std::size_t>(layout.rank_of(layout.last_stage()))];
  const auto backward = std::ranges::find_if(last, is_backward, &Instr::op);
  traits.forward_first =
      std::none_of(backward, last.end(), [](const Instr& i) { return i.op == Op::forward; });
  traits.is_plain = schedule.most_chunks == 1 && !traits.splits_backward && !traits.overlaps_steps;
  return traits;
}

}  // namespace

const Schedule& schedule_of(ScheduleKind kind) {
  return schedule_table[static_cast<std::size_t>(kind)];
}

std::span<const Schedule> schedules() {
  return schedule_table;
}

const Traits& traits_of(ScheduleKind kind) {
  static const auto all = [] {
    std::array<Traits, schedule_table.size()> traits;
    std::ranges::transform(schedule_table, traits.begin(), found_traits);
    return traits;
  }();
  return all[static_cast<std::size_t>(kind)];
}

std::string schedule_words(bool (*applies)(const Schedule&), std::string_view last,
                           std::string_view quote) {
  std::string out;
  std::string_view former;
  const auto add = [&](std::string_view separator, std::string_view word) {
    if (word.empty()) return;
    if (!out.empty()) out += separator;
    out.append(quote).append(word).append(quote);
  };
  for (const Schedule& schedule : schedule_table) {
    if (!applies(schedule)) continue;
    add(", ", former);
    former = schedule.word;
  }
  add(last, former);
  return out;
}

}  // namespace trireme::schedule

namespace trireme {

EnumWords enum_words(ScheduleKind) {
  return schedule::words_of_schedules;
}

}  // namespace trireme
