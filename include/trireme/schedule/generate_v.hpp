#pragma once

#include <trireme/schedule/program.hpp>

namespace trireme::schedule {

/// The schedules of two chunks in a V, with split backward passes. They repeat one block, the
/// passes of one micro-batch; a block starts every 6 units, so that a rank is always busy once the
/// pipeline is full (Qi et al. 2024, arXiv 2405.15362, section 3). The time between the passes of
/// neighbouring ranks determines how long a micro-batch is in flight, and therefore the memory.
/// Weight halves fill the idle time, as far as the memory for saved micro-batches allows.
///
/// If every pass and half takes one unit, a step of m ≥ p micro-batches on p ≥ 2 ranks exceeds the
/// 6 m units of a rank's work by
/// - zb-v: p − 1, the time until the last rank can begin (Qi et al. 2023, arXiv 2401.10241);
/// - v-half: 3 p − 4;
/// - v-min: 4 p − 5, the time of a single micro-batch minus its 6 units.
Program generate_v(ScheduleKind kind, const ProgramLayout& layout);

/// Most saved forward passes of a rank, each of one micro-batch through half of the rank's layers:
/// 2 p, 2 ⌊(p + 2) / 2⌋ or 2 ⌊(p + 4) / 3⌋ (Qi et al. 2024, table 1).
int v_slots(ScheduleKind kind, int ranks);

}  // namespace trireme::schedule
