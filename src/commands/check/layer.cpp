// `trireme check --layer`: tensors and operations of embedding, layers and head.
#include <trireme/architecture/adapter.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/base/text.hpp>
#include <trireme/commands/check/tables.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <array>

namespace trireme::commands {
namespace {

using namespace architecture;

constexpr std::array passes{Pass::forward, Pass::backward_input, Pass::backward_weight};

/// FLOPs of a pass of an operation for one micro-batch on a rank with the sizes `n`.
double flops_of(const BlockDescription& part, const Operation& op, Pass pass,
                const deck::ModelConfig& m, const RankSizes& n) {
  const auto tensor = [&](int t) -> const Tensor& {
    return part.tensors[static_cast<std::size_t>(t)];
  };
  double products = 0;  // of adapters
  if (!op.adapter.empty() && (pass != Pass::backward_weight || op.trains_adapter()))
    products +=
        adapter_products(part, op, n, m.adapter.rank) * (pass == Pass::backward_weight ? 2 : 1);
  // DoRA's gradient of the magnitudes recomputes the product x wᵀ.
  if (pass == Pass::backward_weight && !op.adapter.empty() && op.adapter.front().m > 0)
    products += static_cast<double>(columns_of(tensor(op.input()).columns, n) *
                                    columns_of(tensor(op.output).columns, n));
  return rank_flops(part, op, pass, m, n) +
         2 * product_factor(op, pass) * products *
             static_cast<double>(all_rows_of(tensor(op.output).rows, n));
}

std::string giga(double flops) {
  return flops > 0 ? fixed(flops / 1e9, 3) : "";
}

std::string message_text(const BlockDescription& part, const Operation& op, Pass pass,
                         const deck::Config& c) {
  const auto message = message_of(op, pass, part.tensors, c.parallel.sequence_parallel);
  if (c.parallel.tensor == 1 || !message) return "";
  return std::string(name_of(message->collective));
}

std::string name_of(const Operation& op) {
  return text(op.name, op.name == name_of(op.kind) ? "" : text(" (", name_of(op.kind), ")"));
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

void add_calls(std::vector<std::vector<std::string>>& rows, const char* phase,
               const PhaseProgram& program, const BlockDescription& layer, const deck::Config& c,
               const RankSizes& n) {
  for (const OperationCall& call : program.calls) {
    const auto operation = [&](int number) -> const Operation& {
      return layer.operations[static_cast<std::size_t>(number)];
    };
    const Operation& op = operation(call.operation);
    rows.push_back({phase, call.again ? "recompute" : name_of_pass(call.pass),
                    name_of(op) + (call.fused >= 0 ? " + " + name_of(operation(call.fused)) : ""),
                    message_text(layer, op, call.pass, c),
                    giga(flops_of(layer, op, call.pass, c.model, n))});
  }
}

std::string tensor_bytes(const Tensor& t, const plan::TypedSizes& n) {
  return human_bytes(rows_of(t.rows, n) * columns_of(t.columns, n) *
                     bytes_of(t.numbers, n.element, n.accumulate));
}

/// Tensors and operations of the embedding or the head.
std::string end_report(const BlockDescription& part, const deck::Config& c,
                       const plan::TypedSizes& n, bool split_backward) {
  constexpr std::array homes{"a layer's", "slot", "slot", "slot", "slot", "scratch"};
  std::vector<std::vector<std::string>> tensors{{"tensor", "shape", "memory", "bytes"}};
  for (const Tensor& t : part.tensors)
    if ((t.home != Home::split || split_backward) &&
        !shares_memory(part, t, n.element, n.accumulate))
      tensors.push_back(
          {t.name, shape_text(t), homes[static_cast<std::size_t>(t.home)], tensor_bytes(t, n)});
  std::vector<std::vector<std::string>> operations{
      {"operation", "tensors", "messages forward", "backward", "GFLOP of all passes"}};
  for (const Operation& op : part.operations) {
    const auto name = [&](int t) { return part.tensors[static_cast<std::size_t>(t)].name; };
    double flops = 0;
    std::string backward;
    for (const Pass pass : passes) flops += flops_of(part, op, pass, c.model, n);
    for (const Pass pass : {Pass::backward_input, Pass::backward_weight})
      backward += message_text(part, op, pass, c);  // at most one pass has a message
    const std::string output = op.input() == op.output ? "" : " → " + name(op.output);
    operations.push_back({name_of(op), name(op.input()) + output,
                          message_text(part, op, Pass::forward, c), backward, giga(flops)});
  }
  return columns(tensors, 3, "  ") + "\n\n" + columns(operations, 4, "  ");
}

/// "layers 0-4, 6-10": the first four ranges of layers of a kind.
std::string layers_text(const Architecture& a, std::size_t kind) {
  std::vector<std::string> ranges;
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < a.model.all_layers(); ++layer) {
    if (a.kind_of(layer) != kind) continue;
    if (a.model.in_module(layer))
      return text("the module of predicted token ",
                  layer - a.model.first_decoder_layer() - a.model.decoder_layer(layer) + 1);
    const std::int64_t first = layer;
    while (layer + 1 < a.model.all_layers() && a.kind_of(layer + 1) == kind) ++layer;
    count += layer + 1 - first;
    ranges.push_back(first == layer ? text(first) : text(first, "-", layer));
  }
  constexpr std::size_t most = 4;
  if (ranges.size() > most) {
    ranges.resize(most);
    ranges.emplace_back("…");
  }
  return text(count == 1 ? "layer " : "layers ", join(ranges, ", "));
}

/// Tensors and operation calls of the layers of a kind; headings call these layers `name`.
std::string kind_report(const BlockDescription& layer, const BlockProgram& program,
                        const std::string& name, const deck::Config& c, const plan::TypedSizes& n) {
  const Kept needed = kept_tensors(layer, Recompute::none);
  std::vector<std::vector<std::string>> tensors{{"tensor", "shape", "backward pass", "bytes"}};
  for (std::size_t t = 0; t < layer.tensors.size(); ++t) {
    const Tensor& tensor = layer.tensors[t];
    const char* state = program.kept[t] ? "kept" : needed[t] ? "recomputed" : "not read";
    tensors.push_back({tensor.name, shape_text(tensor), state, tensor_bytes(tensor, n)});
  }
  std::vector<std::vector<std::string>> calls{{"phase", "pass", "operation", "messages", "GFLOP"}};
  add_calls(calls, "forward", program.forward, layer, c, n);
  add_calls(calls, "backward", program.backward, layer, c, n);
  add_calls(calls, "backward_input", program.backward_input, layer, c, n);
  add_calls(calls, "backward_weight", program.backward_weight, layer, c, n);
  return text(
      "\n\ntensors of ", name, "\n", columns(tensors, 3, "  "),
      "\nkept per layer and micro-batch: ", human_bytes(program.kept_bytes + program.work_bytes),
      "; transient, shared by all layers: ", human_bytes(program.transient_bytes), "\n\nsteps of ",
      name, "\n", columns(calls, 4, "  "));
}

}  // namespace

std::string layer_report(const deck::Config& c, const Architecture& a, const Shard& shard,
                         bool split_backward, const plan::Machine& machine) {
  const plan::TypedSizes n = plan::typed_sizes(c, shard, machine);
  const auto programs = plan::layer_programs(c, a, shard, split_backward, machine);
  std::string kinds;
  for (std::size_t k = 0; k < programs.size(); ++k) {
    const Stream stream = a.layer_kinds()[k].stream;
    const char* const source =
        stream == Stream::source ? " of the encoder, where T = T' and R = R'" : "";
    kinds +=
        kind_report(a.layer_kinds()[k], programs[k],
                    programs.size() == 1 ? "a layer" : layers_text(a, k) + source, c, n.of(stream));
  }
  return text("on tensor rank 0 of P = ", n.tensor_ranks,
              n.context_ranks > 1 ? text(" and context rank 0 of ", n.context_ranks) : "",
              " for one micro-batch of B = ", n.micro, ": T = ", n.tokens, " tokens, R = ", n.rows,
              " of them in its residual stream, ",
              n.source.tokens > 0
                  ? text("T' = ", n.source.tokens, " and R' = ", n.source.rows, " of the source, ")
                  : "",
              "N = ", n.targets, " predicted, N' = ", n.logit_block, " at a time\n\nembedding\n",
              end_report(a.embedding(), c, n, split_backward), kinds, "\n\nhead\n",
              end_report(describe_head(a.model, head_gradient(c.parallel)), c, n, split_backward));
}

}  // namespace trireme::commands
