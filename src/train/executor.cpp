// Assigns slots and buffers to the instructions of a rank's row, and groups adjacent transfers.
#include <trireme/base/check.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/executor.hpp>

#include <functional>
#include <map>
#include <set>

namespace trireme::train {

using schedule::Op;
using schedule::Value;

namespace {

/// Assigns each value that `counts` selects the lowest number that is free during its lifetime.
class Numbers {
 public:
  explicit Numbers(std::function<bool(const Value&)> counts) : counts_(std::move(counts)) {}

  void take(const schedule::Effects& effects) {
    for (const Value& v : effects.writes) {
      if (!counts_(v)) continue;
      if (free_.empty()) free_.insert(used_++);
      check(held_.emplace(v, *free_.begin()).second, "two of ", to_string(v), " at a time");
      free_.erase(free_.begin());
    }
  }
  /// Number of the value that the instruction reads or has just written; −1 if there is none.
  int find(const schedule::Effects& effects) const {
    for (const auto* values : {&effects.writes, &effects.reads})
      for (const Value& v : *values)
        if (const auto found = held_.find(v); found != held_.end()) return found->second;
    return -1;
  }
  void give_back(const schedule::Effects& effects) {
    for (const Value& v : effects.frees)
      if (const auto found = held_.find(v); found != held_.end()) {
        free_.insert(found->second);
        held_.erase(found);
      }
  }
  int used() const { return used_; }

 private:
  std::function<bool(const Value&)> counts_;
  int used_ = 0;
  std::set<int> free_;
  std::map<Value, int> held_;
};

}  // namespace

Executor::Executor(const schedule::Program& program, Rank rank)
    : micro_batches_(program.layout.micro_batches) {
  using Kind = Value::Kind;
  const auto of_kinds = [&](bool local, Kind one, Kind other) {
    return Numbers([&layout = program.layout, local, one, other](const Value& v) {
      return (v.kind == one || v.kind == other) && layout.is_local(v) == local;
    });
  };
  Numbers slots = of_kinds(false, Kind::saved, Kind::saved);
  Numbers activations = of_kinds(false, Kind::posted_activation, Kind::posted_activation);
  Numbers gradients = of_kinds(false, Kind::posted_gradient, Kind::posted_gradient);
  Numbers handed_over = of_kinds(true, Kind::sent_activation, Kind::sent_gradient);
  Numbers* const all[] = {&slots, &activations, &gradients, &handed_over};
  schedule::Effects effects;
  for (const schedule::Instr& instr : program.ranks.at(static_cast<std::size_t>(rank))) {
    schedule::effects(instr, program.layout, effects);
    for (Numbers* numbers : all) numbers->take(effects);
    Step step{instr, std::max(0, slots.find(effects)), -1};
    for (const Numbers* numbers : {&activations, &gradients, &handed_over})
      if (step.buffer < 0) step.buffer = numbers->find(effects);
    steps_.push_back(step);
    for (Numbers* numbers : all) numbers->give_back(effects);
    if (instr.op == Op::backward_input) splits_backward_ = true;
  }
  if (program.layout.transport == schedule::Transport::ordered_groups) mark_groups(program.layout);
  slots_ = std::max(1, slots.used());
  activation_buffers_ = activations.used();
  gradient_buffers_ = gradients.used();
  handed_over_buffers_ = handed_over.used();
}

void Executor::mark_groups(const schedule::ProgramLayout& layout) {
  const auto transfers = [&](std::size_t i) {
    return i < steps_.size() && schedule::is_transfer(steps_[i].instr.op) &&
           !layout.is_local(steps_[i].instr);
  };
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].opens_group = transfers(i) && (i == 0 || !transfers(i - 1));
    steps_[i].closes_group = transfers(i) && !transfers(i + 1);
  }
}

namespace {

void run_alone(Actions& actions, const Step& step) {
  const Region region(schedule::name_of(step.instr.op).data());
  switch (step.instr.op) {
    case Op::forward:
      return actions.forward(step);
    case Op::evaluate:
      return actions.evaluate(step);
    case Op::backward:
      return actions.backward(step);
    case Op::backward_input:
      return actions.backward_input(step);
    case Op::backward_weight:
      return actions.backward_weight(step);
    case Op::send_activation:
      return actions.send_activation(step);
    case Op::receive_activation:
      return actions.receive_activation(step);
    case Op::send_gradient:
      return actions.send_gradient(step);
    case Op::receive_gradient:
      return actions.receive_gradient(step);
    case Op::reduce_gradients:
      return actions.reduce_gradients(step);
    case Op::reduce_tied:
      return actions.reduce_tied(step);
    case Op::gradient_norm:
      return actions.gradient_norm(step);
    case Op::optimizer_step:
      return actions.optimizer_step(step);
  }
}

}  // namespace

void run(Actions& actions, const Step& step) {
  if (step.opens_group) actions.begin_group();
  run_alone(actions, step);
  if (step.closes_group) actions.end_group();
}

void Executor::run(Actions& actions) const {
  for (const Step& step : steps_) train::run(actions, step);
}

void Executor::run(const Around& around) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) around(steps_[i], i);
}

}  // namespace trireme::train
