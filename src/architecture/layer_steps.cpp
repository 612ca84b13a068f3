// Derives the backward passes from the list of operations, and inserts recomputation before the
// first step that reads a tensor that was not kept.
#include <trireme/architecture/layer_steps.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

/// Whether one kernel computes the residual addition and the norm of its sum.
bool fuses_norm(const Operation& residual, const Operation& next) {
  return residual.kind == OperationKind::residual && next.kind == OperationKind::norm &&
         next.input == residual.output;
}

/// Builds the backward passes, from the last operation to the first.
class Backward {
 public:
  explicit Backward(const LayerDescription& layer)
      : layer_(layer), has_gradient_(layer.tensors.size(), false) {
    has_gradient_[at(layer.output)] = true;
    for (int i = static_cast<int>(layer.operations.size()); i-- > 0;) add(i);
  }

  BackwardSteps steps;

 private:
  void add(int i) {
    const Operation& op = layer_.operations[at(i)];
    if (!fused(i) && has_pass(op, Pass::backward_input)) {
      Step step{i, Pass::backward_input};
      int target = op.input;
      if (const int activation = gelu_before(op); activation >= 0) {
        step.fused = activation;
        target = layer_.operations[at(activation)].input;
      }
      step.accumulate = !op.in_place() && has_gradient_[at(target)];
      has_gradient_[at(target)] = true;
      if (op.residual >= 0) has_gradient_[at(op.residual)] = true;
      steps.both.push_back(step);
      steps.input.push_back(step);
    }
    if (!has_pass(op, Pass::backward_weight)) return;
    steps.both.push_back({i, Pass::backward_weight});
    steps.weight.push_back(steps.both.back());
  }

  /// The GELU whose output is this product's input; the product's kernel also computes its
  /// gradient. −1: none.
  int gelu_before(const Operation& op) const {
    if (op.kind != OperationKind::linear || !op.adapter.empty()) return -1;
    for (std::size_t i = 0; i < layer_.operations.size(); ++i) {
      const Operation& before = layer_.operations[i];
      if (before.kind == OperationKind::activation && before.output == op.input &&
          before.name == name_of(Activation::gelu))
        return static_cast<int>(i);
    }
    return -1;
  }
  bool fused(int i) const {
    return std::ranges::any_of(steps.input, [&](const Step& step) { return step.fused == i; });
  }

  const LayerDescription& layer_;
  std::vector<bool> has_gradient_;
};

/// Inserts recomputation of tensors that were not kept.
class Recomputation {
 public:
  Recomputation(const LayerDescription& layer, const Kept& kept)
      : layer_(layer), available_(kept) {}

  std::vector<Step> insert(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      for (const int operation : {step.operation, step.fused})
        if (operation >= 0)
          for (const int t : tensors_read(layer_.operations[at(operation)], step.pass)) need(t);
      out_.push_back(step);
    }
    return std::move(out_);
  }

 private:
  /// Recomputes all operations that write the tensor or its output tensors: an operation in place
  /// changes a kept tensor, which the following operations restore.
  void need(int tensor) {
    if (available_[at(tensor)]) return;
    std::vector<bool> wanted(layer_.tensors.size(), false);
    wanted[at(tensor)] = true;
    std::vector<bool> runs(layer_.operations.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < runs.size(); ++i) {
        const auto written = tensors_written(layer_.operations[i]);
        if (runs[i] || std::ranges::none_of(written, [&](int t) { return wanted[at(t)]; }))
          continue;
        runs[i] = changed = true;
        for (const int t : written) wanted[at(t)] = true;
      }
    }
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (runs[i]) run(static_cast<int>(i), wanted);
    for (std::size_t t = 0; t < wanted.size(); ++t)
      if (wanted[t]) available_[t] = true;
  }

  void run(int i, const std::vector<bool>& in_progress) {
    const Operation& op = layer_.operations[at(i)];
    for (const int t : tensors_read(op, Pass::forward))
      if (!in_progress[at(t)]) need(t);
    Step step{i, Pass::forward};
    step.again = true;
    if (!out_.empty() && out_.back().again && out_.back().fused < 0 &&
        fuses_norm(layer_.operations[at(out_.back().operation)], op))
      out_.back().fused = i;
    else
      out_.push_back(step);
  }

  const LayerDescription& layer_;
  std::vector<bool> available_;
  std::vector<Step> out_;
};

}  // namespace

std::vector<Step> forward_steps(const LayerDescription& layer) {
  std::vector<Step> steps;
  for (std::size_t i = 0; i < layer.operations.size(); ++i) {
    const Operation& op = layer.operations[i];
    if (!steps.empty() && steps.back().fused < 0 &&
        fuses_norm(layer.operations[at(steps.back().operation)], op))
      steps.back().fused = static_cast<int>(i);
    else
      steps.push_back({static_cast<int>(i), Pass::forward});
  }
  return steps;
}

BackwardSteps backward_steps(const LayerDescription& layer) {
  return Backward(layer).steps;
}

std::vector<Step> with_recomputation(const LayerDescription& layer, const Kept& kept,
                                     const std::vector<Step>& steps) {
  return Recomputation(layer, kept).insert(steps);
}

StepEffects effects(const LayerDescription& layer, const Step& step) {
  StepEffects e;
  const Operation& op = layer.operations[at(step.operation)];
  const auto read_tensors = [&](const Operation& of) {
    for (const int t : tensors_read(of, step.pass)) e.reads.push_back({t});
  };
  read_tensors(op);
  if (step.pass == Pass::forward) {
    for (const int t : tensors_written(op)) e.writes.push_back({t});
    if (step.fused >= 0)
      for (const int t : tensors_written(layer.operations[at(step.fused)])) e.writes.push_back({t});
    return e;
  }
  e.reads.push_back({op.output, true});
  if (step.pass == Pass::backward_weight) return e;
  int target = op.input;
  if (step.fused >= 0) {
    read_tensors(layer.operations[at(step.fused)]);
    target = layer.operations[at(step.fused)].input;
  }
  e.writes.push_back({target, true});
  return e;
}

}  // namespace trireme::architecture
