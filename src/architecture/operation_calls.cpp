// Derives the backward passes from the list of operations, and inserts recomputation before the
// first call that reads a tensor that was not kept.
#include <trireme/architecture/operation_calls.hpp>
#include <trireme/base/check.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

/// Whether one kernel computes the residual addition and the norm of its sum.
bool fuses_norm(const Operation& residual, const Operation& next) {
  return residual.kind == OperationKind::residual && next.kind == OperationKind::norm &&
         next.input() == residual.output;
}

/// Builds the backward passes, from the last operation to the first.
class Backward {
 public:
  explicit Backward(const BlockDescription& layer)
      : layer_(layer), sums_(layer.tensors.size(), -1) {
    sums_[at(layer.output)] = layer.output;
    // The readers of a value in later blocks have added to its gradient.
    for (std::size_t t = 0; t < sums_.size(); ++t)
      if (layer.tensors[t].home == Home::value) sums_[t] = static_cast<int>(t);
    for (int i = static_cast<int>(layer.operations.size()); i-- > 0;) add(i);
  }

  BackwardCalls calls;

 private:
  void add(int i) {
    const Operation& op = layer_.operations[at(i)];
    if (!fused(i) && has_pass(op, Pass::backward_input)) {
      OperationCall call{i, Pass::backward_input, gelu_before(op)};
      const int target = gradient_target(layer_, call);
      if (!op.in_place()) call.sum = sums_[at(target)];
      sums_[at(target)] = target;
      if (op.kind == OperationKind::residual) {
        int& sum = sums_[at(op.inputs[1])];
        check(sum < 0, "the operations after the residual addition ", op.name,
              " read its operand; their gradients would be lost");
        sum = op.output;
      }
      calls.both.push_back(call);
      calls.input.push_back(call);
    }
    if (!has_pass(op, Pass::backward_weight)) return;
    calls.both.push_back({i, Pass::backward_weight});
    calls.weight.push_back(calls.both.back());
  }

  /// Index of the GELU whose output is this product's input. The kernel of the product's gradient
  /// then also computes the gradient of this GELU. −1: none, or the product has an adapter.
  int gelu_before(const Operation& op) const {
    if (op.kind != OperationKind::linear || !op.adapter.empty()) return -1;
    for (std::size_t i = 0; i < layer_.operations.size(); ++i) {
      const Operation& before = layer_.operations[i];
      if (before.kind == OperationKind::activation && before.output == op.input() &&
          before.name == name_of(Activation::gelu))
        return static_cast<int>(i);
    }
    return -1;
  }
  bool fused(int i) const {
    return std::ranges::any_of(calls.input,
                               [&](const OperationCall& call) { return call.fused == i; });
  }

  const BlockDescription& layer_;
  /// Per tensor: the tensor whose gradient's memory holds the sum of the contributions so far.
  std::vector<int> sums_;
};

/// Inserts the recomputation of tensors that were not kept.
class Recomputation {
 public:
  Recomputation(const BlockDescription& layer, const Kept& kept)
      : layer_(layer), available_(kept) {}

  std::vector<OperationCall> insert(const std::vector<OperationCall>& calls) {
    for (const OperationCall& call : calls) {
      for (const int operation : {call.operation, call.fused})
        if (operation >= 0)
          for (const int t : tensors_read(layer_.operations[at(operation)], call.pass)) need(t);
      out_.push_back(call);
    }
    return std::move(out_);
  }

 private:
  /// Recomputes the tensor unless it is available. Runs all operations that write it or another
  /// output of these operations, because operations in place also change tensors that are kept.
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
    OperationCall call{i, Pass::forward};
    call.again = true;
    if (!out_.empty() && out_.back().again && out_.back().fused < 0 &&
        fuses_norm(layer_.operations[at(out_.back().operation)], op))
      out_.back().fused = i;
    else
      out_.push_back(call);
  }

  const BlockDescription& layer_;
  std::vector<bool> available_;
  std::vector<OperationCall> out_;
};

}  // namespace

std::vector<OperationCall> forward_calls(const BlockDescription& layer) {
  std::vector<OperationCall> calls;
  for (std::size_t i = 0; i < layer.operations.size(); ++i) {
    const Operation& op = layer.operations[i];
    if (!calls.empty() && calls.back().fused < 0 &&
        fuses_norm(layer.operations[at(calls.back().operation)], op))
      calls.back().fused = static_cast<int>(i);
    else
      calls.push_back({static_cast<int>(i), Pass::forward});
  }
  return calls;
}

BackwardCalls backward_calls(const BlockDescription& layer) {
  return Backward(layer).calls;
}

std::vector<OperationCall> with_recomputation(const BlockDescription& layer, const Kept& kept,
                                              const std::vector<OperationCall>& calls) {
  return Recomputation(layer, kept).insert(calls);
}

int gradient_target(const BlockDescription& layer, const OperationCall& call) {
  return layer.operations[at(call.fused >= 0 ? call.fused : call.operation)].input();
}

CallEffects effects(const BlockDescription& layer, const OperationCall& call) {
  CallEffects e;
  const Operation& op = layer.operations[at(call.operation)];
  e.scratch = op.scratch;
  const auto read_tensors = [&](const Operation& of) {
    for (const int t : tensors_read(of, call.pass)) e.reads.push_back({t});
  };
  read_tensors(op);
  if (call.pass == Pass::forward) {
    for (const int t : tensors_written(op)) e.writes.push_back({t});
    if (call.fused >= 0)
      for (const int t : tensors_written(layer.operations[at(call.fused)])) e.writes.push_back({t});
    return e;
  }
  e.reads.push_back({op.output, true});
  if (call.pass == Pass::backward_weight) return e;
  if (call.fused >= 0) read_tensors(layer.operations[at(call.fused)]);
  const int target = gradient_target(layer, call);
  if (call.accumulates() && call.sum != target) e.reads.push_back({call.sum, true});
  e.writes.push_back({target, true});
  if (const auto other = rule_of(op.kind).other_gradients; other != nullptr)
    for (const int t : other(op)) e.writes.push_back({t, true});
  return e;
}

CallBytes least_bytes(const BlockDescription& part, const OperationCall& call,
                      const RankSizes& sizes, Bytes element, Bytes accumulate) {
  const RankSizes n = sizes.of(part.stream);
  const Operation& op = part.operations[at(call.operation)];
  const OperationRule& rule = rule_of(op.kind);
  // Split inputs have the rows of all tokens before the sums over the tensor ranks.
  const auto rows = [&](int tensor) {
    const Rows of = part.tensors[at(tensor)].rows;
    return op.cut == Cut::inputs && of == Rows::own ? n.tokens : mean_rows_of(of, n);
  };
  const std::int64_t output_rows = rows(op.output);
  const auto bytes = [&](const Value& v, std::int64_t most_rows) {
    if (part.tensors[at(v.tensor)].rows == Rows::routed) most_rows = rows(v.tensor);
    const Tensor t = v.gradient ? gradient_of(part, v.tensor) : part.tensors[at(v.tensor)];
    const Columns& columns = v.tensor == op.output && op.changed ? *op.changed : t.columns;
    return static_cast<double>(std::min(rows(v.tensor), most_rows) * columns_of(columns, n) *
                               bytes_of(t.numbers, element, accumulate));
  };
  CallEffects e = effects(part, call);
  if (computes_weights_with_input(op) && call.pass == Pass::backward_weight)
    for (const int t : rule.read_backward(op, call.pass)) e.reads.push_back({t});
  const bool of_table =
      !op.arrays.empty() && op.arrays.front().decay && product_factor(op, Pass::forward) == 0;
  // A table that every rank holds is added to the output.
  if (of_table && call.pass == Pass::forward && op.cut == Cut::none && !op.in_place())
    e.reads.push_back({op.output});
  CallBytes sum;
  for (const Value& value : e.reads) {
    sum.moved += bytes(value, output_rows);
    const bool in_target = value.gradient && value.tensor == call.sum;  // the memory of the target
    if (!in_target) sum.resident += bytes(value, output_rows);
  }
  for (const Value& value : e.writes) {
    const double of = bytes(value, rows(value.tensor));
    const bool adds = call.accumulates() && call.sum == value.tensor;
    sum.moved += adds ? 2 * of : of;
    if (std::ranges::find(e.reads, value) == e.reads.end()) sum.resident += of;
  }
  if (!of_table) return sum;
  const ArraySpec& table = op.arrays.front();
  const std::int64_t used =
      std::min(output_rows, table.of_vocabulary() ? n.vocabulary : table.shape[0]) * table.shape[1];
  const bool forward = call.pass == Pass::forward;
  const auto of_rows = static_cast<double>(used * (forward ? element : accumulate));
  sum.moved += forward ? of_rows : 2 * of_rows;
  sum.resident += of_rows;
  return sum;
}

}  // namespace trireme::architecture
