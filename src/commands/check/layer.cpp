// `trireme check --layer`: the tensors and steps of a layer on the first tensor rank.
#include <trireme/base/text.hpp>
#include <trireme/commands/check/tables.hpp>
#include <trireme/plan/local_sizes.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/recompute.hpp>

namespace trireme::commands {
namespace {

using namespace architecture;

/// FLOPs of a step for one micro-batch on this rank.
double flops_of(const Step& step, const Architecture& a, const LocalSizes& n) {
  const Operation& op = a.layer.operations[static_cast<std::size_t>(step.operation)];
  const auto columns_of_tensor = [&](int t) {
    return static_cast<double>(columns_of(a.layer.tensors[static_cast<std::size_t>(t)].columns, n));
  };
  double products = 0;
  if (op.kind == OperationKind::linear)
    products = columns_of_tensor(op.input) * columns_of_tensor(op.output);
  if (op.kind == OperationKind::attention)
    products = products_per_token(op, a.model) * static_cast<double>(n.heads) /
               static_cast<double>(a.model.heads);
  return 2 * product_factor(op, step.pass) * products * static_cast<double>(n.tokens);
}

std::string messages_of(const Step& step, const Architecture& a, const deck::Config& c) {
  if (c.parallel.tensor == 1) return "";
  std::vector<std::string> names;
  for (const Message message :
       messages(a.layer.operations[static_cast<std::size_t>(step.operation)], step.pass)) {
    if (c.parallel.sequence_parallel)
      names.push_back(message == Message::gather ? "all-gather" : "reduce-scatter");
    else if (message == Message::reduce)
      names.push_back("all-reduce");
  }
  return join(names, ", ");
}

const char* name_of_pass(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward_input:
      return "backward_input";
    case Pass::backward_weight:
      return "backward_weight";
  }
  return "";
}

void add_steps(std::vector<std::vector<std::string>>& rows, const char* phase,
               const PhaseProgram& program, const Architecture& a, const deck::Config& c,
               const LocalSizes& n) {
  for (const Step& step : program.steps) {
    const auto operation = [&](int number) {
      const Operation& op = a.layer.operations[static_cast<std::size_t>(number)];
      return text(op.name, op.name == name_of(op.kind) ? "" : text(" (", name_of(op.kind), ")"));
    };
    const double flops = flops_of(step, a, n);
    rows.push_back(
        {phase, step.again ? "recompute" : name_of_pass(step.pass),
         operation(step.operation) + (step.fused >= 0 ? " + " + operation(step.fused) : ""),
         messages_of(step, a, c), flops > 0 ? fixed(flops / 1e9, 3) : ""});
  }
}

}  // namespace

std::string layer_report(const deck::Config& c, const Architecture& a, const Shard& shard,
                         bool split_backward, const plan::Machine& machine) {
  const plan::LocalSizes n = plan::local_sizes(c, shard, machine);
  const LayerProgram program = plan::layer_program(c, a, shard, split_backward, machine);
  const Kept needed = kept_tensors(a.layer, Recompute::none);
  std::vector<std::vector<std::string>> tensors{{"tensor", "shape", "backward pass", "bytes"}};
  for (std::size_t t = 0; t < a.layer.tensors.size(); ++t) {
    const Tensor& tensor = a.layer.tensors[t];
    const std::int64_t elements = rows_of(tensor.rows, n) * columns_of(tensor.columns, n);
    const Bytes bytes = elements * (tensor.numbers == Numbers::compute ? n.element : n.accumulate);
    const char* state = program.kept[t] ? "kept" : needed[t] ? "recomputed" : "not read";
    tensors.push_back({tensor.name, shape_text(tensor), state, human_bytes(bytes)});
  }
  std::vector<std::vector<std::string>> steps{{"phase", "pass", "operation", "messages", "GFLOP"}};
  add_steps(steps, "forward", program.forward, a, c, n);
  add_steps(steps, "backward", program.backward, a, c, n);
  add_steps(steps, "backward_input", program.backward_input, a, c, n);
  add_steps(steps, "backward_weight", program.backward_weight, a, c, n);
  return text(
      "tensors of a layer on tensor rank 0 for one micro-batch: T = ", n.tokens,
      " tokens, R = ", n.rows, " of them in its residual stream\n", columns(tensors, 3, "  "),
      "\nkept per layer and micro-batch: ", human_bytes(program.kept_bytes + program.work_bytes),
      "; transient, for all layers: ", human_bytes(program.transient_bytes), "\n\nsteps\n",
      columns(steps, 4, "  "));
}

}  // namespace trireme::commands
