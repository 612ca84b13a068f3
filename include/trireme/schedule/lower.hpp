#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

namespace trireme::schedule {

struct LowerOptions {
  bool tied = false;  ///< the last stage uses the first stage's token table
  Transport transport = Transport::independent_channels;
  /// Durations for the choice of an order of transfers under ordered groups; empty: unit_cost.
  Cost cost{};
};

/// Adds transfers, reductions and the update to a program of computing instructions.
///
/// Under independent channels, a send directly follows its producer, and a receive is posted before
/// the pass that precedes its consumer, so that the transfer overlaps one computation. Under
/// ordered groups, both sides of every transfer have the same position in one total order: the
/// order in which the producers end when the program is simulated with unit_cost or with `cost`,
/// whichever gives the shorter step with `cost`. A rank's transfers whose producers end at the same
/// time form one group.
///
/// A training program of one step ends with the reduction of each stage's gradients and of the tied
/// gradients, the norm and the update; for several steps, see add_overlapped_updates(). A program
/// for evaluation gets only transfers.
///
/// Throws Error if an instruction is misplaced or is a transfer, a reduction or an update.
void lower(Program& program, const LowerOptions& options = {});

}  // namespace trireme::schedule
