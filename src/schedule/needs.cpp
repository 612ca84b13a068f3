// Memory that a rank needs, counted from its instructions.
#include <trireme/schedule/needs.hpp>

#include <trireme/base/check.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/repetition.hpp>

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

Needs buffers_needed(const ProgramLayout& layout, Rank rank) {
  Needs needs;
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

Needs expected_needs(ScheduleKind kind, const ProgramLayout& layout, Rank rank) {
  Needs needs = buffers_needed(layout, rank);
  const RowCounts& counts = row_counts(kind, layout)[static_cast<std::size_t>(rank)];
  needs.slots = counts.slots;
  needs.split_backward = counts.splits_backward;
  return needs;
}

}  // namespace trireme::schedule
