// Memory that a rank needs, counted from its instructions or in closed form.
#include <trireme/schedule/needs.hpp>

#include <trireme/base/check.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/machine.hpp>

#include <algorithm>

namespace trireme::schedule {
namespace {

using Kind = Value::Kind;

/// A number of live values, and its maximum.
struct Count {
  int live = 0;
  int most = 0;

  void add() { most = std::max(most, ++live); }
};

/// All needs except for send buffers, which depend on the whole program.
Needs needs_of_row(const Program& program, Rank rank) {
  check(rank >= 0 && rank < static_cast<int>(program.ranks.size()), "rank ", rank,
        " is not in this program of ", program.ranks.size(), " rows");
  Needs needs;
  Count saved, activations, gradients, handed_over, logits;
  const auto count_of = [&](const Value& v) -> Count* {
    const bool local = program.layout.is_local(v);
    if (v.kind == Kind::saved) return &saved;
    if (v.kind == Kind::logits_slot) return &logits;
    if (v.kind == Kind::posted_activation && !local) return &activations;
    if (v.kind == Kind::posted_gradient && !local) return &gradients;
    const bool sent = v.kind == Kind::sent_activation || v.kind == Kind::sent_gradient;
    return sent && local ? &handed_over : nullptr;
  };
  Effects e;
  for (const Instr& instr : program.ranks[static_cast<std::size_t>(rank)]) {
    if (instr.op == Op::backward_weight) needs.split_backward = true;
    effects(instr, program.layout, e);
    for (const Value& v : e.writes)
      if (Count* count = count_of(v)) count->add();
    for (const Value& v : e.frees)
      if (Count* count = count_of(v)) --count->live;
  }
  needs.slots = saved.most;
  needs.received_activations = activations.most;
  needs.received_gradients = gradients.most;
  needs.handed_over = handed_over.most;
  needs.logits_slots = logits.most;
  return needs;
}

int send_buffers_needed(const Program& program) {
  return simulate(program, unit_cost).send_buffers;
}

}  // namespace

void Needs::include(const Needs& other) {
  slots = std::max(slots, other.slots);
  received_activations = std::max(received_activations, other.received_activations);
  received_gradients = std::max(received_gradients, other.received_gradients);
  handed_over = std::max(handed_over, other.handed_over);
  logits_slots = std::max(logits_slots, other.logits_slots);
  send_buffers = std::max(send_buffers, other.send_buffers);
  split_backward = split_backward || other.split_backward;
}

Needs needs(const Program& program, Rank rank) {
  Needs found = needs_of_row(program, rank);
  found.send_buffers = send_buffers_needed(program);
  return found;
}

std::vector<Needs> needs(const Program& program) {
  std::vector<Needs> all;
  const int send_buffers = send_buffers_needed(program);
  for (Rank r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
    all.push_back(needs_of_row(program, r));
    all.back().send_buffers = send_buffers;
  }
  return all;
}

int slots_needed(const Program& program, Rank rank) {
  return needs_of_row(program, rank).slots;
}

// Closed-form needs of the named schedules, for searches that cannot generate every program.

namespace {

/// Number of existing micro-batches among the first `steps` forward passes (see Rounds).
int existing(int steps, const ProgramLayout& l) {
  const int rounds = (l.micro_batches + l.ranks - 1) / l.ranks;
  const int whole = (rounds - 1) * l.ranks * l.chunks;
  if (steps <= whole) return steps;
  const int last = l.micro_batches - (rounds - 1) * l.ranks;
  const int rest = steps - whole;
  return whole + rest / l.ranks * last + std::min(rest % l.ranks, last);
}

/// Number of saved micro-batches. With 1f1b and interleaved, a rank keeps the micro-batches of its
/// warm-up and the next micro-batch.
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
  for (int chunk = 0; chunk < layout.chunks; ++chunk)  // one message per direction
    if (layout.map().hands_over(layout.stage_of(rank, chunk))) needs.handed_over = 2;
  if (layout.ranks == 1) return needs;
  // One receive is posted while the previously received value is used. An evaluation needs all
  // receive buffers of activations, even if a training step has only one micro-batch.
  const bool grouped = layout.transport == Transport::ordered_groups;
  if (rank > 0 || layout.chunks > 1) needs.received_activations = grouped ? 3 : 2;
  if (rank + 1 < layout.ranks || layout.chunks > 1)
    needs.received_gradients = std::min(layout.micro_batches, 2);
  return needs;
}

}  // namespace trireme::schedule
