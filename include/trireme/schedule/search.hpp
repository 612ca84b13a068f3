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

/// Largest number of micro-batches that the search lets a rank save: min(2 p, m) for each chunk.
int most_slots(const ProgramLayout& layout);

/// The fastest program that the search finds for these costs in which rank r saves at most slots[r]
/// micro-batches at a time; slots[r] must be at least the number of chunks. Candidates are the
/// named schedules of the layout and list schedules (Graham 1969) with different rules (ListRule),
/// of which the best are refined rank by rank. The result depends only on the arguments.
FoundProgram search_program(const ProgramLayout& layout, const Cost& cost,
                            std::span<const int> slots, const LowerOptions& lowering);

}  // namespace trireme::schedule
