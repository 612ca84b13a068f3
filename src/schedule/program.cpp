// The instructions, and effects(), which lists the values that each instruction reads, writes and
// frees. All other passes derive dependences from it.
#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/schedule/program.hpp>

#include <ostream>

namespace trireme::schedule {

using Kind = Value::Kind;

std::string_view name_of(Op op) {
  constexpr std::string_view names[ops] = {
      "forward",          "evaluate",         "backward",           "backward_input",
      "backward_weight",  "send_activation",  "receive_activation", "send_gradient",
      "receive_gradient", "reduce_gradients", "reduce_tied",        "gradient_norm",
      "optimizer_step"};
  return names[static_cast<std::size_t>(op)];
}

std::string_view name_of(Transport transport) {
  switch (transport) {
    case Transport::independent_channels:
      return "independent channels";
    case Transport::ordered_groups:
      return "ordered groups";
  }
  return "?";
}

std::string to_string(const Instr& instr) {
  std::string out = text(name_of(instr.op), " stage ", instr.stage);
  if (is_compute(instr.op) || is_transfer(instr.op)) out += text(" micro ", instr.micro);
  return out;
}

std::ostream& operator<<(std::ostream& out, const Instr& instr) {
  return out << to_string(instr);
}

std::string to_string(const Value& v) {
  const std::string of_stage = text(" of stage ", v.stage);
  const std::string micro = text(" micro ", v.micro);
  switch (v.kind) {
    case Kind::output:
      return "the output" + of_stage + micro;
    case Kind::sent_activation:
      return "the arrival of the input" + of_stage + micro;
    case Kind::posted_activation:
      return "a posted receive of the input" + of_stage + micro;
    case Kind::saved:
      return "the saved activations" + of_stage + micro;
    case Kind::input_gradient:
      return "the input gradient" + of_stage + micro;
    case Kind::sent_gradient:
      return "the arrival of the output gradient" + of_stage + micro;
    case Kind::posted_gradient:
      return "a posted receive of the output gradient" + of_stage + micro;
    case Kind::weight_work:
      return "the input half's work" + of_stage + micro;
    case Kind::weight_gradient:
      return "the weight gradient" + of_stage + " up to" + micro;
    case Kind::reduced:
      return "the reduced gradient" + of_stage;
    case Kind::tied:
      return "the tied gradient" + of_stage;
    case Kind::norm:
      return text("the gradient norm on rank ", v.stage);
    case Kind::weights:
      return "the updated weights" + of_stage;
  }
  return "?";
}

namespace {

/// Helpers that append the effects of one instruction.
struct Writer {
  const ProgramLayout& layout;
  Stage s;
  Micro m;
  Effects& e;

  Stage last() const { return layout.last_stage(); }

  void take_input() {
    if (s == 0) return;
    e.reads.push_back({Kind::sent_activation, s, m});
    e.reads.push_back({Kind::posted_activation, s, m});
    e.frees.push_back({Kind::sent_activation, s, m});
    e.frees.push_back({Kind::posted_activation, s, m});
  }
  void take_output_gradient() {
    if (s == last()) return;
    e.reads.push_back({Kind::sent_gradient, s, m});
    e.reads.push_back({Kind::posted_gradient, s, m});
    e.frees.push_back({Kind::sent_gradient, s, m});
    e.frees.push_back({Kind::posted_gradient, s, m});
  }
  void give_input_gradient() {
    if (s > 0) e.writes.push_back({Kind::input_gradient, s, m});
  }
  /// The last stage's forward pass adds to the loss and may add to the gradient of the logits'
  /// table.
  void chain_loss() {
    if (s == last() && m > 0) e.reads.push_back({Kind::output, s, m - 1});
  }
  void chain_weight_gradient() {
    if (m > 0) e.reads.push_back({Kind::weight_gradient, s, m - 1});
    e.writes.push_back({Kind::weight_gradient, s, m});
  }
  void pass(Kind from, Kind to, Stage receiver) {
    e.reads.push_back({from, s, m});
    e.writes.push_back({to, receiver, m});
    e.frees.push_back({from, s, m});
  }
  /// The gradients that the rank's norm sums: all of its stages' and the tied table's.
  void take_gradients_of_rank() {
    const Rank rank = layout.rank_of(s);
    for (int chunk = 0; chunk < layout.chunks; ++chunk)
      e.reads.push_back({Kind::reduced, layout.stage_of(rank, chunk), 0});
    if (layout.tied && layout.holds_table(rank))
      e.reads.push_back({Kind::tied, rank == layout.rank_of(0) ? 0 : last(), 0});
  }
  void reduce_tied() {
    e.reads.push_back({Kind::reduced, s, 0});
    if (layout.holders_of_table() == 1 && last() != s)
      e.reads.push_back({Kind::reduced, last(), 0});
    e.writes.push_back({Kind::tied, s, 0});
  }
};

}  // namespace

void effects(const Instr& instr, const ProgramLayout& layout, Effects& out) {
  out.reads.clear();
  out.writes.clear();
  out.frees.clear();
  const Stage s = instr.stage;
  const Micro m = instr.micro;
  Writer w{layout, s, m, out};
  switch (instr.op) {
    case Op::forward:
      w.take_input();
      w.chain_loss();
      out.writes.push_back({Kind::output, s, m});
      out.writes.push_back({Kind::saved, s, m});
      break;
    case Op::evaluate:
      w.take_input();
      w.chain_loss();
      out.writes.push_back({Kind::output, s, m});
      break;
    case Op::backward:
      out.reads.push_back({Kind::saved, s, m});
      w.take_output_gradient();
      w.give_input_gradient();
      w.chain_weight_gradient();
      out.frees.push_back({Kind::saved, s, m});
      break;
    case Op::backward_input:
      out.reads.push_back({Kind::saved, s, m});
      w.take_output_gradient();
      w.give_input_gradient();
      out.writes.push_back({Kind::weight_work, s, m});
      break;
    case Op::backward_weight:
      out.reads.push_back({Kind::saved, s, m});
      out.reads.push_back({Kind::weight_work, s, m});
      w.chain_weight_gradient();
      out.frees.push_back({Kind::saved, s, m});
      out.frees.push_back({Kind::weight_work, s, m});
      break;
    case Op::send_activation:
      w.pass(Kind::output, Kind::sent_activation, s + 1);
      break;
    case Op::receive_activation:
      out.writes.push_back({Kind::posted_activation, s, m});
      break;
    case Op::send_gradient:
      w.pass(Kind::input_gradient, Kind::sent_gradient, s - 1);
      break;
    case Op::receive_gradient:
      out.writes.push_back({Kind::posted_gradient, s, m});
      break;
    case Op::reduce_gradients:
      out.reads.push_back({Kind::weight_gradient, s, layout.micro_batches - 1});
      out.writes.push_back({Kind::reduced, s, 0});
      break;
    case Op::reduce_tied:
      w.reduce_tied();
      break;
    case Op::gradient_norm:
      w.take_gradients_of_rank();
      out.writes.push_back({Kind::norm, s, 0});
      break;
    case Op::optimizer_step:
      out.reads.push_back({Kind::norm, s, 0});
      for (int chunk = 0; chunk < layout.chunks; ++chunk)
        out.writes.push_back({Kind::weights, layout.stage_of(layout.rank_of(s), chunk), 0});
      break;
  }
}

Effects effects(const Instr& instr, const ProgramLayout& layout) {
  Effects out;
  effects(instr, layout, out);
  return out;
}

Instr partner_of(const Instr& i) {
  switch (i.op) {
    case Op::send_activation:
      return {Op::receive_activation, i.stage + 1, i.micro};
    case Op::receive_activation:
      return {Op::send_activation, i.stage - 1, i.micro};
    case Op::send_gradient:
      return {Op::receive_gradient, i.stage - 1, i.micro};
    case Op::receive_gradient:
      return {Op::send_gradient, i.stage + 1, i.micro};
    case Op::forward:
    case Op::evaluate:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::reduce_gradients:
    case Op::reduce_tied:
    case Op::gradient_norm:
    case Op::optimizer_step:
      break;
  }
  check(false, i, " is not a transfer");
  return i;
}

bool ProgramLayout::is_local(const Instr& transfer) const {
  return peer_of(transfer, *this) == rank_of(transfer.stage);
}

bool ProgramLayout::is_local(const Value& message) const {
  switch (message.kind) {
    case Kind::sent_activation:
    case Kind::posted_activation:
      return map().hands_over(message.stage - 1);
    case Kind::sent_gradient:
    case Kind::posted_gradient:
      return map().hands_over(message.stage);
    case Kind::output:
    case Kind::saved:
    case Kind::input_gradient:
    case Kind::weight_work:
    case Kind::weight_gradient:
    case Kind::reduced:
    case Kind::tied:
    case Kind::norm:
    case Kind::weights:
      break;
  }
  return false;
}

Rank peer_of(const Instr& instr, const ProgramLayout& layout) {
  return layout.rank_of(partner_of(instr).stage);
}

std::string misplaced(const Instr& i, const ProgramLayout& layout, Rank rank) {
  const Stage last = layout.last_stage();
  if (i.stage < 0 || i.stage > last) return text("its stage is not in 0 … ", last);
  if (i.micro < 0 || i.micro >= layout.micro_batches)
    return text("its micro-batch is not in 0 … ", layout.micro_batches - 1);
  if (layout.rank_of(i.stage) != rank)
    return text("its stage is on rank ", layout.rank_of(i.stage));
  const bool from_before = i.op == Op::receive_activation || i.op == Op::send_gradient;
  if (from_before && i.stage == 0) return "the first stage has no previous stage";
  const bool from_behind = i.op == Op::receive_gradient || i.op == Op::send_activation;
  if (from_behind && i.stage == last) return "the last stage has no next stage";
  if ((i.op == Op::gradient_norm || i.op == Op::optimizer_step) &&
      i.stage != layout.first_stage(rank))
    return text("it belongs to the rank's first stage, ", layout.first_stage(rank));
  if (i.op == Op::reduce_tied && !layout.tied) return "no gradients are tied";
  if (i.op == Op::reduce_tied && i.stage != 0 &&
      (layout.holders_of_table() == 1 || i.stage != last))
    return "the tied token table belongs to the first and the last stage";
  return "";
}

std::uint64_t fingerprint(std::span<const Program> programs) {
  Checksum sum;
  std::vector<std::int32_t> words;
  const auto append = [&words](auto... values) {
    (words.push_back(static_cast<std::int32_t>(values)), ...);
  };
  for (const Program& program : programs) {
    const ProgramLayout& layout = program.layout;
    append(layout.ranks, layout.micro_batches, layout.chunks, layout.tied, layout.placement);
    for (const auto& row : program.ranks) {
      append(row.size());
      for (const Instr& i : row) append(i.op, i.stage, i.micro);
      sum.update(words.data(), words.size() * sizeof(std::int32_t));
      words.clear();
    }
  }
  return sum.digest().low;
}

}  // namespace trireme::schedule
