#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

#include <span>
#include <vector>

/// Programs of several training steps without a flush between them (ProgramLayout::steps).
namespace trireme::schedule {

/// Steps of an overlapped program: one that starts, one that is repeated, and one that ends.
inline constexpr int overlapped_steps = 3;

/// PipeDream-2BW (Narayanan et al. 2021, arXiv 2006.09503, section 3.1): 1f1b without a flush. Rank
/// r runs p − 1 − r forward passes ahead, also into the next step. Throws Error if a step has fewer
/// micro-batches than ranks: a rank could not finish its update in time.
Program generate_overlapped(const ProgramLayout& layout, int steps = overlapped_steps);

/// Adds reductions, norm and update of each step to the rows of an overlapped program that has its
/// transfers. They are part of the following step: the gradients are reduced, and the sums for the
/// tied table and the norm begin and later end. The update is the last instruction before the
/// weights are needed: it precedes the first forward pass of the step after the following one.
void add_overlapped_updates(Program& program);

/// Number of instructions of a row up to the end of each step. A step includes the previous step's
/// update; the last step also includes its own.
std::vector<std::size_t> ends_of_steps(std::span<const Instr> row, const ProgramLayout& layout);

/// The instruction with the numbers of a program that begins with step `step` of this program.
Instr seen_from(const Instr& instr, int step, const ProgramLayout& layout);

/// The lowered program of one step alone: 1f1b with the same layout.
Program single_step(const Program& overlapped);

/// Time and idle share of the repeated step: the longest time of all ranks between the last passes
/// of two consecutive steps. 0 if the timeline has no such step.
struct SteadyStep {
  Seconds seconds = 0;
  double idle_share = 0;
};
SteadyStep steady_step(const Timeline& timeline);

}  // namespace trireme::schedule
