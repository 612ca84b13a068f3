#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

#include <span>
#include <vector>

/// Programs of several training steps without a flush between them (ProgramLayout::steps).
namespace trireme::schedule {

/// Steps of an overlapped program: the first, the repeated, and the last step.
inline constexpr int overlapped_steps = 3;

/// PipeDream-2BW (Narayanan et al. 2021, arXiv 2006.09503, section 3.1): 1f1b without a flush. Rank
/// r runs p − 1 − r forward passes ahead, also into the next step. Throws Error if the layout has
/// more than one chunk, or if a step has fewer micro-batches than ranks.
Program generate_overlapped(const ProgramLayout& layout, int steps = overlapped_steps);

/// Adds reductions, norm and update of each step to the rows of an overlapped program that has its
/// transfers. The reductions run during the next step, or at the end of the row. The update
/// directly precedes the first forward pass that needs the new weights.
void add_overlapped_updates(Program& program);

/// Number of instructions of a row up to the end of each step. A step includes the previous step's
/// update; the last step also includes its own update.
std::vector<std::size_t> ends_of_steps(std::span<const Instr> row, const ProgramLayout& layout);

/// The instruction, renumbered as in a program that begins with step `step`.
Instr seen_from(const Instr& instr, int step, const ProgramLayout& layout);

/// The lowered program of one step alone: 1f1b with the same layout.
Program single_step(const Program& overlapped);

/// Time and idle share of the repeated step. The time is the longest time of a rank between the
/// last backward passes of the first and of the repeated step. Both members are 0 if the timeline
/// has no such step.
struct SteadyStep {
  Seconds seconds = 0;
  double idle_share = 0;
};
SteadyStep steady_step(const Timeline& timeline);

}  // namespace trireme::schedule
