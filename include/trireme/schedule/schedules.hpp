#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// The values of [parallel] schedule, in the order of their table (schedule::schedule_of).
enum class ScheduleKind : std::uint8_t {
  gpipe,
  one_forward_one_backward,
  interleaved,
  zb_h1,
  zb_v,
  v_half,
  v_min,
  dualpipe_v,
  two_bw,
  automatic,  ///< the fastest program of a search (schedule::search_program)
  file        ///< a program file
};
EnumWords enum_words(ScheduleKind);

}  // namespace trireme

/// The table of schedules. Its rows say how a program is generated and which stages it needs. All
/// other properties of a schedule are properties of its programs.
namespace trireme::schedule {

struct Program;
struct ProgramLayout;

/// Largest number of chunks of a schedule without a limit of its own.
inline constexpr int any_chunks = 65536;

/// A row of the table.
struct Schedule {
  ScheduleKind kind = ScheduleKind::automatic;
  std::string_view word;
  /// Generates the computing instructions of all ranks for a layout that generate() has checked.
  /// Null: the program has another origin.
  Program (*generate)(const ProgramLayout&) = nullptr;
  int least_chunks = 1;  ///< stages of a pipeline rank
  int most_chunks = 1;
  StagePlacement placement = StagePlacement::round_robin;
  /// Whether searches of layouts try the schedule even if the deck does not name it.
  bool compared = true;

  bool accepts(std::int64_t chunks) const {
    return least_chunks <= chunks && chunks <= most_chunks;
  }
  bool has_fixed_chunks() const { return least_chunks == most_chunks; }
  /// Value of [parallel] chunks if the deck has none.
  int default_chunks() const { return has_fixed_chunks() ? least_chunks : 1; }
};
const Schedule& schedule_of(ScheduleKind kind);
/// All rows in the order of ScheduleKind.
std::span<const Schedule> schedules();

/// Properties of all programs of a schedule, found in a short program; all false for the kinds
/// without a generator.
struct Traits {
  bool splits_backward = false;  ///< some backward passes are separated into two halves
  bool overlaps_steps = false;   ///< the program has several steps without a flush
  bool forward_first = false;    ///< all forward passes of a step precede its backward passes
  /// Whether each rank runs whole passes of one stage, with a flush after each step.
  bool is_plain = false;
};
const Traits& traits_of(ScheduleKind kind);

/// Words of the schedules for which `applies` is true: "zb-v, v-half and v-min". `last`: between
/// the last two words; `quote`: around each word.
std::string schedule_words(bool (*applies)(const Schedule&), std::string_view last = " and ",
                           std::string_view quote = "");

// Generators of the table.
Program gpipe_program(const ProgramLayout& layout);
Program alternating_program(const ProgramLayout& layout);
Program interleaved_program(const ProgramLayout& layout);
Program zb_h1_program(const ProgramLayout& layout);
Program zb_v_program(const ProgramLayout& layout);
Program v_half_program(const ProgramLayout& layout);
Program v_min_program(const ProgramLayout& layout);
Program dualpipe_v_program(const ProgramLayout& layout);
Program two_bw_program(const ProgramLayout& layout);

}  // namespace trireme::schedule
