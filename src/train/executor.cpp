#include <trireme/base/check.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/train/executor.hpp>

#include <map>
#include <set>

namespace trireme::train {

using schedule::Op;
using schedule::Value;

Executor::Executor(const schedule::Program& program, Rank rank)
    : slots_(schedule::slots_needed(program, rank)) {
  std::set<int> free;
  for (int slot = 0; slot < slots_; ++slot) free.insert(slot);
  std::map<Value, int> held;
  for (const schedule::Instr& instr : program.ranks[static_cast<std::size_t>(rank)]) {
    const schedule::Effects effects = schedule::effects(instr, program.layout);
    const Value saved{Value::Kind::saved, instr.stage, instr.micro};
    for (const Value& v : effects.writes)
      if (v == saved) {
        check(!free.empty(), "no slot is free for ", instr);
        held[v] = *free.begin();
        free.erase(free.begin());
      }
    const auto found = held.find(saved);
    entries_.push_back({instr, found == held.end() ? -1 : found->second});
    for (const Value& v : effects.frees)
      if (v == saved) {
        free.insert(found->second);
        held.erase(found);
      }
  }
}

void Executor::run(Actions& actions) const {
  for (const Entry& e : entries_) {
    switch (e.instr.op) {
      case Op::forward:
        actions.forward(e.instr, e.slot);
        break;
      case Op::backward:
        actions.backward(e.instr, e.slot);
        break;
      case Op::backward_input:
        actions.backward_input(e.instr, e.slot);
        break;
      case Op::backward_weight:
        actions.backward_weight(e.instr, e.slot);
        break;
      case Op::evaluate:
      case Op::send_activation:
      case Op::receive_activation:
      case Op::send_gradient:
      case Op::receive_gradient:
        check(false, e.instr, " is not executed");
        break;
      case Op::reduce_tied:  // both are part of the step
      case Op::gradient_norm:
        break;
      case Op::reduce_gradients:
        actions.reduce_gradients(e.instr);
        break;
      case Op::optimizer_step:
        actions.optimizer_step(e.instr);
        break;
    }
  }
}

}  // namespace trireme::train
