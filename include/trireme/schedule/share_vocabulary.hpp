#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

namespace trireme::schedule {

/// Adds the passes of a vocabulary that all pipeline ranks share to a program of forward and
/// backward passes of one stage per rank that is not yet lowered (Yeung et al. 2024, arXiv
/// 2411.05288, algorithm 2):
/// - look_up: each rank adds its rows to the first stage's input;
/// - share_output, logits, combine_logits: the last stage's output goes to all ranks; each computes
///   its logits and its part of the output's gradient, which is scaled once the statistics of all
///   ranks are known, and summed for the last stage's backward pass;
/// - logits_gradient: the output table's gradient, in idle time or two micro-batches later;
/// - share_gradient, look_up_gradient: likewise for the token table.
/// Each rank runs these passes as soon as they can begin, in virtual time, before its next pass.
/// Messages take a quarter of a forward pass there, so that a rank rarely waits for one. The result
/// depends only on the arguments, so that all ranks build the same program.
void share_vocabulary(Program& program, const Cost& cost);

}  // namespace trireme::schedule
