// Effects of the instructions: effects() lists the values that each instruction reads, writes and
// frees. All other code derives dependences from effects().
#include <trireme/schedule/program.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/base/text.hpp>

#include <ostream>

namespace trireme::schedule {

using Kind = Value::Kind;

namespace {

/// Helpers that append the effects of one instruction.
struct Writer {
  const ProgramLayout& layout;
  Stage s;
  Micro m;
  Effects& e;

  Stage last() const { return layout.last_stage(); }

  /// Reads the value of this kind and stage for micro-batch m − before, if m ≥ before.
  void read(Kind kind, Micro before = 0) {
    if (m >= before) e.reads.push_back({kind, s, m - before});
  }
  void chain(Kind kind) {
    read(kind, 1);
    e.writes.push_back({kind, s, m});
  }
  void take_input() {
    if (s == 0) {
      if (layout.shares_vocabulary) read(Kind::looked_up);
      return;
    }
    e.reads.push_back({Kind::sent_activation, s, m});
    e.reads.push_back({Kind::posted_activation, s, m});
    e.frees.push_back({Kind::sent_activation, s, m});
    e.frees.push_back({Kind::posted_activation, s, m});
  }
  void take_output_gradient() {
    if (s == last()) {
      if (layout.shares_vocabulary) read(Kind::output_gradient);
      return;
    }
    e.reads.push_back({Kind::sent_gradient, s, m});
    e.reads.push_back({Kind::posted_gradient, s, m});
    e.frees.push_back({Kind::sent_gradient, s, m});
    e.frees.push_back({Kind::posted_gradient, s, m});
  }
  void give_input_gradient() {
    if (s > 0) e.writes.push_back({Kind::input_gradient, s, m});
  }
  /// The last stage's forward passes add to the loss in the order of the micro-batches.
  void chain_loss() {
    if (s == last() && m % layout.micro_batches > 0) e.reads.push_back({Kind::output, s, m - 1});
  }
  void chain_weight_gradient() {
    if (m % layout.micro_batches > 0) e.reads.push_back({Kind::weight_gradient, s, m - 1});
    e.writes.push_back({Kind::weight_gradient, s, m});
    if (layout.shares_vocabulary && s == 0) e.writes.push_back({Kind::embedding_gradient, s, m});
  }
  /// With a shared vocabulary, share_gradient frees the first stage's slot.
  void free_saved() {
    if (!layout.shares_vocabulary || s > 0) e.frees.push_back({Kind::saved, s, m});
  }
  void share_output() {
    read(Kind::scores, shared_buffers);
    if (s == last()) read(Kind::output);
  }
  void combine_logits() {
    read(Kind::scores);
    read(Kind::statistics);
    read(Kind::output_gradient, shared_buffers);
    chain(Kind::combined);
  }
  void logits_gradient() {
    read(Kind::logits_slot);
    read(Kind::combined);
    chain(Kind::table_gradient);
    e.frees.push_back({Kind::logits_slot, s, m});
  }
  void share_gradient() {
    read(Kind::look_up_sum, shared_buffers);
    if (s > 0) return;
    e.reads.push_back({Kind::saved, s, m});
    e.reads.push_back({Kind::embedding_gradient, s, m});
    e.frees.push_back({Kind::saved, s, m});
    e.frees.push_back({Kind::embedding_gradient, s, m});
  }
  /// Step t uses the weights before the update of step t − 1.
  void take_weights() {
    if (layout.step_of(m) >= 2) e.reads.push_back({Kind::weights, s, layout.step_of(m) - 2});
  }
  void pass(Kind from, Kind to, Stage receiver) {
    e.reads.push_back({from, s, m});
    e.writes.push_back({to, receiver, m});
    e.frees.push_back({from, s, m});
  }
  /// Reads the gradients of all stages of the rank, and of the tied table.
  void take_gradients_of_rank() {
    const Rank rank = layout.rank_of(s);
    for (int chunk = 0; chunk < layout.chunks; ++chunk)
      e.reads.push_back({Kind::reduced, layout.stage_of(rank, chunk), m});
    if (layout.tied && layout.holds_table(rank))
      e.reads.push_back({Kind::tied, rank == layout.rank_of(0) ? 0 : last(), m});
  }
  /// With overlapping steps, the sum ends after every rank has begun its part.
  void end_norm() {
    if (!layout.overlaps_steps()) return take_gradients_of_rank();
    for (Rank rank = 0; rank < layout.ranks; ++rank)
      e.reads.push_back({Kind::norm_part, layout.first_stage(rank), m});
  }
  void update() {
    e.reads.push_back({Kind::norm, s, m});
    for (int chunk = 0; chunk < layout.chunks; ++chunk) {
      const Stage stage = layout.stage_of(layout.rank_of(s), chunk);
      e.writes.push_back({Kind::weights, stage, m});
      // The new weights replace the weights of update m − 2, which step m used.
      if (m >= 2) e.frees.push_back({Kind::weights, stage, m - 2});
    }
  }
  void take_tied_gradients() {
    e.reads.push_back({Kind::reduced, s, m});
    if (layout.holders_of_table() == 1 && last() != s)
      e.reads.push_back({Kind::reduced, last(), m});
  }
  void reduce_tied() {
    if (layout.overlaps_steps())
      for (const Stage end : layout.ends_of_table()) e.reads.push_back({Kind::tied_part, end, m});
    else
      take_tied_gradients();
    e.writes.push_back({Kind::tied, s, m});
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
      w.take_weights();
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
      w.take_weights();
      out.reads.push_back({Kind::saved, s, m});
      w.take_output_gradient();
      w.give_input_gradient();
      w.chain_weight_gradient();
      w.free_saved();
      break;
    case Op::backward_input:
      w.take_weights();
      out.reads.push_back({Kind::saved, s, m});
      w.take_output_gradient();
      w.give_input_gradient();
      out.writes.push_back({Kind::weight_work, s, m});
      break;
    case Op::backward_weight:
      out.reads.push_back({Kind::saved, s, m});
      out.reads.push_back({Kind::weight_work, s, m});
      w.chain_weight_gradient();
      w.free_saved();
      out.frees.push_back({Kind::weight_work, s, m});
      break;
    case Op::look_up:
      w.read(Kind::looked_up, shared_buffers);
      break;
    case Op::share_output:
      w.share_output();
      break;
    case Op::logits:
    case Op::evaluate_logits:
      w.read(Kind::shared_output);
      w.read(Kind::combined, 1);
      out.writes.push_back({Kind::scores, s, m});
      if (instr.op == Op::logits) out.writes.push_back({Kind::logits_slot, s, m});
      break;
    case Op::combine_logits:
      w.combine_logits();
      break;
    case Op::logits_gradient:
      w.logits_gradient();
      break;
    case Op::share_gradient:
      w.share_gradient();
      break;
    case Op::look_up_gradient:
      w.read(Kind::shared_gradient);
      w.chain(Kind::look_up_sum);
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
      out.reads.push_back({Kind::weight_gradient, s, (m + 1) * layout.micro_batches - 1});
      if (layout.shares_vocabulary)
        for (const Kind kind : {Kind::table_gradient, Kind::look_up_sum})
          out.reads.push_back({kind, s, layout.micro_batches - 1});
      out.writes.push_back({Kind::reduced, s, m});
      break;
    case Op::reduce_tied:
      w.reduce_tied();
      break;
    case Op::gradient_norm:
      w.end_norm();
      out.writes.push_back({Kind::norm, s, m});
      break;
    case Op::optimizer_step:
      w.update();
      break;
    case Op::begin_tied:
      w.take_tied_gradients();
      out.writes.push_back({Kind::tied_part, s, m});
      break;
    case Op::begin_norm:
      w.take_gradients_of_rank();
      out.writes.push_back({Kind::norm_part, s, m});
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
    case Op::look_up:
    case Op::logits:
    case Op::evaluate_logits:
    case Op::combine_logits:
    case Op::logits_gradient:
    case Op::look_up_gradient:
    case Op::share_output:
    case Op::share_gradient:
    case Op::reduce_gradients:
    case Op::reduce_tied:
    case Op::gradient_norm:
    case Op::optimizer_step:
    case Op::begin_tied:
    case Op::begin_norm:
      break;
  }
  check(false, i, " is not a transfer");
  return i;
}

Kind arrival_of(Op op) {
  if (op == Op::look_up) return Kind::looked_up;
  if (op == Op::share_output) return Kind::shared_output;
  if (op == Op::logits || op == Op::evaluate_logits) return Kind::statistics;
  if (op == Op::combine_logits) return Kind::output_gradient;
  if (op == Op::share_gradient) return Kind::shared_gradient;
  check(false, name_of(op), " is no message among all pipeline ranks");
  return Kind::output;
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
    case Kind::tied_part:
    case Kind::norm_part:
    case Kind::looked_up:
    case Kind::shared_output:
    case Kind::scores:
    case Kind::statistics:
    case Kind::combined:
    case Kind::output_gradient:
    case Kind::embedding_gradient:
    case Kind::shared_gradient:
    case Kind::logits_slot:
    case Kind::table_gradient:
    case Kind::look_up_sum:
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
  const bool of_pass = i.op < Op::reduce_gradients;
  if (const int count = of_pass ? layout.passes() : layout.steps; i.micro < 0 || i.micro >= count)
    return text("its ", of_pass ? "micro-batch" : "step", " is not in 0 … ", count - 1);
  if (layout.rank_of(i.stage) != rank)
    return text("its stage is on rank ", layout.rank_of(i.stage));
  const bool from_before = i.op == Op::receive_activation || i.op == Op::send_gradient;
  if (from_before && i.stage == 0) return "the first stage has no previous stage";
  const bool from_behind = i.op == Op::receive_gradient || i.op == Op::send_activation;
  if (from_behind && i.stage == last) return "the last stage has no next stage";
  if (is_begin(i.op) && !layout.overlaps_steps()) return "the program has only one step";
  const bool of_rank =
      i.op == Op::gradient_norm || i.op == Op::begin_norm || i.op == Op::optimizer_step;
  if (of_rank && i.stage != layout.first_stage(rank))
    return text("it belongs to the rank's first stage, ", layout.first_stage(rank));
  const bool of_vocabulary = is_shared(i.op) || (is_compute(i.op) && !is_pass(i.op));
  if (of_vocabulary && !layout.shares_vocabulary) return "the vocabulary is not shared";
  const bool of_table = i.op == Op::reduce_tied || i.op == Op::begin_tied;
  if (of_table && !layout.tied) return "no gradients are tied";
  if (of_table && i.stage != 0 && (layout.holders_of_table() == 1 || i.stage != last))
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
    append(layout.ranks, layout.micro_batches, layout.chunks, layout.tied, layout.placement,
           layout.steps);
    if (layout.shares_vocabulary) append(-1);
    for (const auto& row : program.ranks) {
      append(row.size());
      for (const Instr& i : row) append(i.op, i.stage, i.micro);
      sum.update(words.data(), words.size() * sizeof(std::int32_t));
      words.clear();
    }
  }
  return sum.digest().low;
}

// Names of instructions, transports and values, for messages and files.
using Kind = Value::Kind;

std::string_view name_of(Op op) {
  static constexpr auto all =
      words_of<Op>("forward", "evaluate", "backward", "backward_input", "backward_weight",
                   "look_up", "logits", "evaluate_logits", "combine_logits", "logits_gradient",
                   "look_up_gradient", "send_activation", "receive_activation", "send_gradient",
                   "receive_gradient", "share_output", "share_gradient", "reduce_gradients",
                   "reduce_tied", "gradient_norm", "optimizer_step", "begin_tied", "begin_norm");
  return all[static_cast<std::size_t>(op)];
}

std::string_view name_of(Transport transport) {
  static constexpr auto all = words_of<Transport>("independent channels", "ordered groups");
  return all[static_cast<std::size_t>(transport)];
}

std::string to_string(const Instr& instr) {
  std::string out = text(name_of(instr.op), " stage ", instr.stage);
  if (instr.op < Op::reduce_gradients) out += text(" micro ", instr.micro);
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
    case Kind::tied_part:
      return "the begin of the tied gradient's sum" + of_stage;
    case Kind::norm_part:
      return text("the begin of the gradient norm on rank ", v.stage);
    case Kind::looked_up:
      return "the embedding" + micro;
    case Kind::shared_output:
      return "the arrival of the last stage's output" + micro;
    case Kind::scores:
      return text("the statistics of the logits on rank ", v.stage) + micro;
    case Kind::statistics:
      return "the arrival of all ranks' statistics of the logits" + micro;
    case Kind::combined:
      return text("the loss on rank ", v.stage, " up to") + micro;
    case Kind::output_gradient:
      return "the gradient of the last stage's output" + micro;
    case Kind::embedding_gradient:
      return "the gradient of the embedding" + micro;
    case Kind::shared_gradient:
      return "the arrival of the embedding's gradient" + micro;
    case Kind::logits_slot:
      return text("the softmax kept on rank ", v.stage) + micro;
    case Kind::table_gradient:
      return text("the output table's gradient on rank ", v.stage, " up to") + micro;
    case Kind::look_up_sum:
      return text("the token table's gradient on rank ", v.stage, " up to") + micro;
  }
  return "?";
}

}  // namespace trireme::schedule
