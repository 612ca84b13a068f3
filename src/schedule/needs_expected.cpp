// Needs of the named schedules by formulas, for searches that cannot generate every program.
#include <trireme/base/check.hpp>
#include <trireme/schedule/generate_v.hpp>
#include <trireme/schedule/needs.hpp>

#include <algorithm>

namespace trireme::schedule {
namespace {

/// The first `steps` forward passes of an interleaved rank that are of existing micro-batches:
/// its last round of p micro-batches has m − (rounds − 1) p of them in each chunk.
int existing(int steps, const ProgramLayout& l) {
  const int rounds = (l.micro_batches + l.ranks - 1) / l.ranks;
  const int whole = (rounds - 1) * l.ranks * l.chunks;
  if (steps <= whole) return steps;
  const int last = l.micro_batches - (rounds - 1) * l.ranks;
  const int rest = steps - whole;
  return whole + rest / l.ranks * last + std::min(rest % l.ranks, last);
}

/// A rank keeps the micro-batches of its warm-up and the one that follows.
int slots_of(ScheduleKind kind, const ProgramLayout& l, Rank rank) {
  const int m = l.micro_batches;
  switch (kind) {
    case ScheduleKind::gpipe:
      return m;
    case ScheduleKind::one_forward_one_backward:
    case ScheduleKind::two_bw:
      return std::min(m, l.ranks - rank);
    case ScheduleKind::interleaved: {
      const int steps = (m + l.ranks - 1) / l.ranks * l.ranks * l.chunks;
      const int warmup = (l.ranks - 1 - rank) * 2 + (l.chunks - 1) * l.ranks;
      return existing(std::min(steps, warmup + 1), l);
    }
    case ScheduleKind::zb_h1:
      return std::min(m, l.ranks);
    case ScheduleKind::zb_v:
    case ScheduleKind::v_half:
    case ScheduleKind::v_min:
      return std::min(2 * m, v_slots(kind, l.ranks));
    case ScheduleKind::automatic:
    case ScheduleKind::file:
      break;
  }
  check(false, "the needs of a program file are counted, not computed");
  return 0;
}

}  // namespace

Needs expected_needs(ScheduleKind kind, const ProgramLayout& layout, Rank rank) {
  Needs needs;
  needs.slots = slots_of(kind, layout, rank);
  needs.split_backward = kind == ScheduleKind::zb_h1 || is_v_schedule(kind);
  needs.send_buffers = 2;
  for (int chunk = 0; chunk < layout.chunks; ++chunk)  // one each way
    if (layout.map().hands_over(layout.stage_of(rank, chunk))) needs.handed_over = 2;
  if (layout.ranks == 1) return needs;
  // One is posted while its predecessor is used. Evaluations always post two activations.
  const bool grouped = layout.transport == Transport::ordered_groups;
  if (rank > 0 || layout.chunks > 1) needs.received_activations = grouped ? 3 : 2;
  if (rank + 1 < layout.ranks || layout.chunks > 1)
    needs.received_gradients = std::min(layout.micro_batches, 2);
  return needs;
}

}  // namespace trireme::schedule
