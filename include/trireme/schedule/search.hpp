#pragma once

#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <span>
#include <string>

namespace trireme::schedule {

/// A lowered program, the result of a search.
struct FoundProgram {
  Program program;
  Seconds seconds = 0;  ///< end of the last event, in virtual time
  std::string origin;   ///< name of the schedule, "1f1b", …, or "list"
};

/// Most micro-batches that the search lets a rank save: 2 per rank and chunk, or all.
int most_slots(const ProgramLayout& layout);

/// The fastest program for these costs in which rank r saves at most slots[r] micro-batches at a
/// time, of which each chunk needs one. Candidates are the named schedules of the layout and list
/// schedules: each rank takes the next pass that can begin, by rules that differ in the order of
/// passes, the halves of the backward pass, and the micro-batches that a rank saves (Graham 1969).
/// The rules of small programs are then refined rank by rank. The result depends only on the
/// arguments, so that all ranks find the same program.
FoundProgram search_program(const ProgramLayout& layout, const Cost& cost,
                            std::span<const int> slots, const LowerOptions& lowering);

}  // namespace trireme::schedule
