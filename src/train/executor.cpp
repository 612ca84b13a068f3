// Runs a rank's row of a program: assigns slots and buffers to its instructions, groups adjacent
// transfers, and calls the actions.
#include <trireme/train/executor.hpp>

#include <trireme/base/check.hpp>
#include <trireme/schedule/overlap.hpp>
#include <trireme/tensor/region.hpp>

#include <algorithm>
#include <utility>

namespace trireme::train {

using schedule::Op;
using schedule::Value;

void Numbers::take(const schedule::Effects& effects) {
  for (const Value& v : effects.writes) {
    if (!counts_(v)) continue;
    if (free_.empty()) free_.insert(used_++);
    check(held_.emplace(v, *free_.begin()).second, "two of ", to_string(v), " at a time");
    free_.erase(free_.begin());
  }
}

int Numbers::find(const schedule::Effects& effects) const {
  for (const auto* values : {&effects.writes, &effects.reads})
    for (const Value& v : *values)
      if (const auto found = held_.find(v); found != held_.end()) return found->second;
  return -1;
}

void Numbers::give_back(const schedule::Effects& effects) {
  for (const Value& v : effects.frees)
    if (const auto found = held_.find(v); found != held_.end()) {
      free_.insert(found->second);
      held_.erase(found);
    }
}

void Numbers::renumber(int by) {
  std::map<Value, int> held;
  for (const auto& [value, number] : held_)
    held.emplace(Value{value.kind, value.stage, value.micro - by}, number);
  held_ = std::move(held);
}

Executor::Executor(const schedule::Program& program, Rank rank)
    : layout_(program.layout),
      row_(program.ranks.at(static_cast<std::size_t>(rank))),
      ends_(schedule::ends_of_steps(row_, program.layout)),
      micro_batches_(program.layout.micro_batches) {
  reset_numbers();
  assign(row_, 0);
  slots_ = std::max(1, numbers_[0].used());
  logits_slots_ = numbers_[1].used();
  activation_buffers_ = numbers_[2].used();
  gradient_buffers_ = numbers_[3].used();
  handed_over_buffers_ = numbers_[4].used();
  if (!overlaps_steps()) {
    mark_groups();
    return;
  }
  alone_ = schedule::single_step(program).ranks.at(static_cast<std::size_t>(rank));
  reset_numbers();
}

void Executor::reset_numbers() {
  using Kind = Value::Kind;
  const auto of_kinds = [&](bool local, Kind one, Kind other) {
    return Numbers([layout = layout_, local, one, other](const Value& v) {
      return (v.kind == one || v.kind == other) && layout.is_local(v) == local;
    });
  };
  numbers_.clear();
  numbers_.push_back(of_kinds(false, Kind::saved, Kind::saved));
  numbers_.push_back(of_kinds(false, Kind::logits_slot, Kind::logits_slot));
  numbers_.push_back(of_kinds(false, Kind::posted_activation, Kind::posted_activation));
  numbers_.push_back(of_kinds(false, Kind::posted_gradient, Kind::posted_gradient));
  numbers_.push_back(of_kinds(true, Kind::sent_activation, Kind::sent_gradient));
}

void Executor::assign(std::span<const schedule::Instr> row, int step) {
  schedule::Effects effects;
  int logits_slot = 0;  // slot of the last logits; combine_logits precedes the next logits
  for (const schedule::Instr& numbered : row) {
    const schedule::Instr instr = schedule::seen_from(numbered, step, layout_);
    schedule::effects(instr, layout_, effects);
    for (Numbers& numbers : numbers_) numbers.take(effects);
    PlacedInstr found{instr, std::max(0, numbers_[0].find(effects)),
                      std::max(0, numbers_[1].find(effects)), -1};
    if (instr.op == Op::logits) logits_slot = found.logits_slot;
    if (instr.op == Op::combine_logits) found.logits_slot = logits_slot;
    for (std::size_t i = 2; i < numbers_.size() && found.buffer < 0; ++i)
      found.buffer = numbers_[i].find(effects);
    placed_.push_back(found);
    for (Numbers& numbers : numbers_) numbers.give_back(effects);
    if (instr.op == Op::backward_input) splits_backward_ = true;
  }
}

void Executor::prepare(bool begun, bool next_follows) {
  if (!overlaps_steps()) return;
  placed_.clear();
  part_ = !begun ? 0 : next_follows ? 1 : ends_.size() - 1;
  if (!begun) reset_numbers();
  if (!begun && !next_follows) {
    assign(alone_, 0);
  } else {
    const std::size_t begin = first_position();
    assign(std::span(row_).subspan(begin, ends_[part_] - begin), part());
  }
  for (Numbers& numbers : numbers_) numbers.renumber(static_cast<int>(micro_batches_));
  mark_groups();
}

void Executor::mark_groups() {
  if (layout_.transport != schedule::Transport::ordered_groups) return;
  const auto transfers = [&](std::size_t i) {
    return i < placed_.size() && schedule::is_transfer(placed_[i].instr.op) &&
           !layout_.is_local(placed_[i].instr);
  };
  for (std::size_t i = 0; i < placed_.size(); ++i) {
    placed_[i].opens_group =
        transfers(i) && (i == 0 || !transfers(i - 1) || placed_[i].instr.opens_group);
    placed_[i].closes_group =
        transfers(i) && (!transfers(i + 1) || placed_[i + 1].instr.opens_group);
  }
}

namespace {

void run_alone(Actions& actions, const PlacedInstr& placed) {
  const Region region(schedule::name_of(placed.instr.op).data());
  switch (placed.instr.op) {
    case Op::forward:
      return actions.forward(placed);
    case Op::evaluate:
      return actions.evaluate(placed);
    case Op::backward:
      return actions.backward(placed);
    case Op::backward_input:
      return actions.backward_input(placed);
    case Op::backward_weight:
      return actions.backward_weight(placed);
    case Op::look_up:
    case Op::logits:
    case Op::evaluate_logits:
    case Op::combine_logits:
    case Op::logits_gradient:
    case Op::look_up_gradient:
    case Op::share_output:
    case Op::share_gradient:
      return actions.shared_vocabulary(placed);
    case Op::send_activation:
      return actions.send_activation(placed);
    case Op::receive_activation:
      return actions.receive_activation(placed);
    case Op::send_gradient:
      return actions.send_gradient(placed);
    case Op::receive_gradient:
      return actions.receive_gradient(placed);
    case Op::reduce_gradients:
      return actions.reduce_gradients(placed);
    case Op::reduce_tied:
      return actions.reduce_tied(placed);
    case Op::gradient_norm:
      return actions.gradient_norm(placed);
    case Op::optimizer_step:
      return actions.optimizer_step(placed);
    case Op::begin_tied:
      return actions.begin_tied(placed);
    case Op::begin_norm:
      return actions.begin_norm(placed);
  }
}

}  // namespace

void run(Actions& actions, const PlacedInstr& placed) {
  if (placed.opens_group) actions.begin_group();
  run_alone(actions, placed);
  if (placed.closes_group) actions.end_group();
}

void Executor::run(Actions& actions) const {
  for (const PlacedInstr& placed : placed_) train::run(actions, placed);
}

void Executor::run(const Around& around) const {
  for (std::size_t i = 0; i < placed_.size(); ++i) around(placed_[i], i);
}

}  // namespace trireme::train
