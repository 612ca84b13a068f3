#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

namespace trireme::schedule {

/// Adds the passes of a shared vocabulary, which is divided among all pipeline ranks, to a program
/// that is not yet lowered and has one stage per rank (Yeung et al. 2024, arXiv 2411.05288,
/// algorithm 2):
/// - look_up: each rank adds its rows to the first stage's input;
/// - share_output, logits, combine_logits: the last stage's output is sent to all ranks. Each rank
///   computes its logits and its part of the output's gradient. When the statistics of all ranks
///   are known, each rank scales its part, and the parts are summed for the last stage;
/// - logits_gradient: the output table's gradient, in idle time if possible;
/// - share_gradient, look_up_gradient: the gradient of the first stage's input is sent to all
///   ranks, and each rank adds it to the gradient of its part of the token table.
///
/// The order is found in virtual time, in which a message takes a quarter of a forward pass.
void share_vocabulary(Program& program, const Cost& cost);

}  // namespace trireme::schedule
