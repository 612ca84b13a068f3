#pragma once

#include <trireme/layout/ring.hpp>
#include <trireme/schedule/picture.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/schedule/schedules.hpp>

#include <vector>

namespace trireme::schedule {

/// Generates the computing instructions of each of p ranks in the order of a named schedule, for
/// any m ≥ 1 micro-batches; 2bw needs m ≥ p.
/// - gpipe: all forward passes, then all backward passes, both 0 … m−1 (Huang et al. 2019).
/// - 1f1b: the fewest forward passes that keep every stage busy, then one backward pass for each
///   forward pass (PipeDream-Flush; Narayanan et al. 2021, section 2.2.1).
/// - interleaved: 1f1b with chunks ≥ 2 stages on each rank, in rounds of p micro-batches per
///   chunk (Narayanan et al. 2021, section 2.2.2).
/// - zb-h1: 1f1b with weight halves in the idle time, and no more saved micro-batches than 1f1b's
///   first rank (Qi et al. 2023, arXiv 2401.10241, section 2.3).
/// - zb-v, v-half, v-min: two chunks in a V, with split backward passes. They repeat one block, the
///   passes of one micro-batch; a block starts every 6 units (Qi et al. 2024, arXiv 2405.15362,
///   section 3). Weight halves fill the idle time.
/// - dualpipe-v: two chunks in a V; forward passes of one chunk alternate with backward passes of
///   the other chunk (dualpipe_v.cpp).
/// - 2bw: 1f1b of several steps without a flush; see generate_overlapped().
///
/// If every pass and half takes one unit, a step of m ≥ p micro-batches on p ≥ 2 ranks in a V
/// exceeds the 6 m units of a rank's work, with at most n saved forward passes on a rank, each of
/// half of the rank's layers, by
/// - zb-v: p − 1, the time until the last rank can begin (Qi et al. 2023, arXiv 2401.10241); n = 2
/// p;
/// - v-half: 3 p − 4; n = 2 ⌊(p + 2) / 2⌋ (Qi et al. 2024, table 1);
/// - v-min: 4 p − 5, the time of a single micro-batch minus its 6 units; n = 2 ⌊(p + 4) / 3⌋;
/// - dualpipe-v: p − 1 for m ≥ 2 p; n = 2 p + 1.
///
/// Set layout.shares_vocabulary for a program that share_vocabulary() will complete.
///
/// Throws Error if the chunks or their placement do not fit the schedule, and for the kinds `file`
/// (see read_program) and `auto` (see search_program).
Program generate(ScheduleKind kind, const ProgramLayout& layout);

/// A program of forward passes only (`evaluate`), for any number of chunks.
Program generate_evaluation(const ProgramLayout& layout);

/// A step of a rank in the forward pass of ring attention.
struct RingStep {
  int rank = 0;
  int step = 0;
  int owner = 0;              ///< owner of the keys
  double begin = 0, end = 0;  ///< times; the unit is the work of one visible (query, key) pair
};

/// Simulates the steps of all ranks. A rank begins a step when it has computed the previous step,
/// has received the step's block of keys and values, and has sent its previous block to the next
/// rank. Messages take no time.
std::vector<RingStep> simulate(const layout::AttentionRing& ring);

/// The ring as a chart: boxes have the number and the colour of the keys' owner.
Picture ring_picture(const layout::AttentionRing& ring);

/// Fraction of all ranks' time without computation.
double idle_share(const std::vector<RingStep>& steps);

}  // namespace trireme::schedule
