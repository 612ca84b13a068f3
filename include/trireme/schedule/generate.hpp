#pragma once

#include <trireme/schedule/program.hpp>

namespace trireme::schedule {

/// The computing instructions of each rank in the order of a named schedule; m may be any number
/// ≥ 1.
/// - gpipe: all forward passes, then all backward passes, both 0 … m−1 (Huang et al. 2019).
/// - 1f1b: as few forward passes as keep every stage busy, then one backward pass for each forward
///   pass (PipeDream-Flush; Narayanan et al. 2021, section 2.2.1).
/// - interleaved: the same with chunks ≥ 2 stages on each rank, p micro-batches of a chunk in turn
///   (Narayanan et al. 2021, section 2.2.2).
/// - zb-h1: 1f1b whose weight halves fill what would be idle, with no more saved micro-batches than
///   the first rank of 1f1b (Qi et al. 2023, arXiv 2401.10241, section 2.3).
/// Throws Error where chunks do not fit the schedule, and for `file`, which read_program reads.
Program generate(ScheduleKind kind, const ProgramLayout& layout);

/// Forward passes only, by `evaluate`; any number of chunks.
Program generate_evaluation(const ProgramLayout& layout);

}  // namespace trireme::schedule
