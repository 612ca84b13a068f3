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

/// Largest number of micro-batches that the search lets a rank save: for each chunk of the rank, 2
/// per pipeline rank, or all micro-batches if they are fewer.
int most_slots(const ProgramLayout& layout);

/// The fastest program that the search finds for these costs in which rank r saves at most slots[r]
/// micro-batches at a time; slots[r] must be at least the number of chunks. Candidates are the
/// named schedules of the layout and list schedules (Graham 1969), in which each rank takes the
/// next pass that can begin. The rules of list schedules differ in the order of passes, the halves
/// of the backward pass, and the number of micro-batches that a rank saves. The best rules are then
/// refined rank by rank, within a budget that suffices for small programs. The result depends only
/// on the arguments, so that all ranks find the same program.
FoundProgram search_program(const ProgramLayout& layout, const Cost& cost,
                            std::span<const int> slots, const LowerOptions& lowering);

}  // namespace trireme::schedule
