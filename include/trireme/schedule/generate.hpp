#pragma once

#include <trireme/layout/ring.hpp>
#include <trireme/schedule/picture.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

#include <vector>

namespace trireme::schedule {

/// The computing instructions of each rank in the order of a named schedule. Any m ≥ 1.
/// - gpipe: all forward passes, then all backward passes, both 0 … m−1 (Huang et al. 2019).
/// - 1f1b: the fewest forward passes that keep every stage busy, then one backward pass for each
///   forward pass (PipeDream-Flush; Narayanan et al. 2021, section 2.2.1).
/// - interleaved: the same with chunks ≥ 2 stages on each rank, in rounds of p micro-batches per
///   chunk (Narayanan et al. 2021, section 2.2.2).
/// - zb-h1: 1f1b with weight halves in the idle time, and no more saved micro-batches than 1f1b's
///   first rank (Qi et al. 2023, arXiv 2401.10241, section 2.3).
/// - 2bw: 1f1b of several steps without a flush, see generate_overlapped().
/// - zb-v, v-half, v-min: two chunks in a V, see generate_v().
///
/// With layout.shares_vocabulary, which share_vocabulary() needs, 1f1b has two more micro-batches
/// in flight on each rank, and zb-h1, whose passes are shorter, one.
///
/// Throws Error if the chunks do not fit the schedule, for `file`, which read_program reads, and
/// for `auto`, which search_program finds.
Program generate(ScheduleKind kind, const ProgramLayout& layout);

/// A program of forward passes only, by `evaluate`, for any number of chunks.
Program generate_evaluation(const ProgramLayout& layout);

/// The schedules of two chunks in a V, with halved backward passes. They repeat one block: the
/// passes of a micro-batch, which start every 6 units, so that a rank is always busy once the
/// pipeline is full (Qi et al. 2024, arXiv 2405.15362, section 3). The time between the passes of
/// neighbour ranks sets how long a micro-batch is in flight, and with it the memory. Weight halves
/// fill the idle time, as far as the memory for saved micro-batches allows.
///
/// If every pass and half takes one unit, a step of m ≥ p micro-batches on p ≥ 2 ranks is longer
/// than the 6 m of a rank's work by
/// - zb-v: p − 1, the time until the last rank can begin (Qi et al. 2023, arXiv 2401.10241);
/// - v-half: 3 p − 4;
/// - v-min: 4 p − 5, the time of a single micro-batch less its 6.
Program generate_v(ScheduleKind kind, const ProgramLayout& layout);

/// The most saved forward passes of a rank, each of one micro-batch through half of the rank's
/// layers: 2 p, 2 ⌊(p + 2) / 2⌋ or 2 ⌊(p + 4) / 3⌋ (Qi et al. 2024, table 1).
int v_slots(ScheduleKind kind, int ranks);

/// A step of a rank in a forward pass of attention.
struct RingStep {
  int rank = 0;
  int step = 0;
  int owner = 0;              ///< of the keys
  double begin = 0, end = 0;  ///< in pairs of a query and a key that it sees
};

/// The steps of all ranks. A rank begins a step when it has computed the one before, has the block
/// of keys and values, and its next rank has the block before; messages take no time.
std::vector<RingStep> play(const layout::AttentionRing& ring);

/// The ring as a chart: boxes have the number of the keys' owner and its colour.
Picture ring_picture(const layout::AttentionRing& ring);

/// Fraction of the time of all ranks without computation.
double idle_share(const std::vector<RingStep>& steps);

/// Adds the passes of a vocabulary that all pipeline ranks share to a program of forward and
/// backward passes of one stage per rank, not yet lowered (Yeung et al. 2024, arXiv 2411.05288,
/// algorithm 2):
/// - look_up: each rank adds the rows that it has to the first stage's input;
/// - share_output, logits, combine_logits: the last stage's output goes to all ranks, each computes
///   its logits and its part of the output's gradient, which is scaled once the statistics of all
///   ranks are known, and summed for the last stage's backward pass;
/// - logits_gradient: the output table's gradient, in idle time or two micro-batches later;
/// - share_gradient, look_up_gradient: the same for the token table.
/// Each rank takes them as soon as they can begin, in virtual time, before its next pass. Messages
/// take a quarter of a forward pass there, so that a rank rarely waits for one. Depends on the
/// arguments alone: all ranks build the same program.
void share_vocabulary(Program& program, const Cost& cost);

}  // namespace trireme::schedule
