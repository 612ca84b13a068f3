#pragma once

#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <span>
#include <string>

namespace trireme::schedule {

/// A program that a search found, lowered.
struct FoundProgram {
  Program program;
  Seconds seconds = 0;  ///< until the last event ends, in virtual time
  std::string origin;   ///< "1f1b", …, or "list" for one that no schedule has
};

/// Micro-batches that the search lets a rank save at most: 2 for each rank and chunk, or all.
int most_slots(const ProgramLayout& layout);

/// The fastest program for these costs in which rank r saves at most slots[r] micro-batches at a
/// time, of which each chunk needs one. Candidates are the named schedules of the layout and lists:
/// each rank takes the next pass that can begin, by rules that differ in the passes that go first,
/// the halves of the backward pass, and the micro-batches that a rank saves (list scheduling;
/// Graham 1969). The rules of small programs are then refined rank by rank. Depends on its
/// arguments alone: all ranks find the same.
FoundProgram search_program(const ProgramLayout& layout, const Cost& cost,
                            std::span<const int> slots, const LowerOptions& lowering);

}  // namespace trireme::schedule
