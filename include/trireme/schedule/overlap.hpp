#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

#include <span>
#include <vector>

/// Programs of several training steps without a flush between them (ProgramLayout::steps).
namespace trireme::schedule {

/// Steps of such a program: one that starts, one that is repeated, and one that ends.
inline constexpr int overlapped_steps = 3;

/// PipeDream-2BW (Narayanan et al. 2021, arXiv 2006.09503, section 3.1): 1f1b without a flush.
/// Rank r runs p − 1 − r forward passes ahead, also into the next step. Throws Error if a step has
/// fewer micro-batches than ranks: a rank could not finish its update in time.
Program generate_overlapped(const ProgramLayout& layout, int steps = overlapped_steps);

/// Adds reductions, norm and update of each step to the rows of such a program with its transfers.
/// They are part of the following step: the gradients are reduced, the sums for the tied table and
/// the norm begin, and later end. The update is the last instruction before the weights are needed:
/// it precedes the first forward pass of the step after the following one.
void add_overlapped_updates(Program& program);

/// Number of instructions of a row up to the end of each step. Updates of the step before a step
/// are part of it; the last step has its own update too.
std::vector<std::size_t> ends_of_steps(std::span<const Instr> row, const ProgramLayout& layout);

/// Numbers the instruction as in a program that begins with step `step` of this one.
Instr seen_from(const Instr& instr, int step, const ProgramLayout& layout);

/// The lowered program of one step alone: 1f1b with the same layout.
Program single_step(const Program& overlapped);

/// Time and idle share of the repeated step: from the end of a rank's last pass of a step to that
/// of the next one, the longest of all ranks. 0 if the timeline does not have it.
struct SteadyStep {
  Seconds seconds = 0;
  double idle_share = 0;
};
SteadyStep steady_step(const Timeline& timeline);

}  // namespace trireme::schedule
