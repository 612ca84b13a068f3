#pragma once

#include <trireme/schedule/program.hpp>

namespace trireme::schedule {

/// Generates the computing instructions of each rank in the order of a named schedule, for any m ≥
/// 1.
/// - gpipe: all forward passes, then all backward passes, both 0 … m−1 (Huang et al. 2019).
/// - 1f1b: the fewest forward passes that keep every stage busy, then one backward pass for each
///   forward pass (PipeDream-Flush; Narayanan et al. 2021, section 2.2.1).
/// - interleaved: 1f1b with chunks ≥ 2 stages on each rank, in rounds of p micro-batches per
///   chunk (Narayanan et al. 2021, section 2.2.2).
/// - zb-h1: 1f1b with weight halves in the idle time, and no more saved micro-batches than 1f1b's
///   first rank (Qi et al. 2023, arXiv 2401.10241, section 2.3).
/// - 2bw: 1f1b of several steps without a flush; see generate_overlapped().
/// - zb-v, v-half, v-min: two chunks in a V; see generate_v().
///
/// With layout.shares_vocabulary, which share_vocabulary() requires, each rank has two more
/// micro-batches in flight with 1f1b, and one more with zb-h1, whose passes are shorter.
///
/// Throws Error if the chunks do not fit the schedule, for `file` (see read_program) and for `auto`
/// (see search_program).
Program generate(ScheduleKind kind, const ProgramLayout& layout);

/// A program of forward passes only (`evaluate`), for any number of chunks.
Program generate_evaluation(const ProgramLayout& layout);

}  // namespace trireme::schedule
