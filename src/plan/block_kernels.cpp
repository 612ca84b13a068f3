// Kernels of the operation calls in a rank's block programs, as made by model/operations.cpp.
#include <trireme/plan/block_kernels.hpp>
#include <trireme/plan/memory.hpp>

#include <algorithm>
#include <array>
#include <tuple>

namespace trireme::plan {
namespace {

using architecture::BlockDescription;
using architecture::Operation;
using architecture::OperationCall;
using architecture::OperationKind;
using architecture::Pass;

const Operation& at(const BlockDescription& layer, int operation) {
  return layer.operations[static_cast<std::size_t>(operation)];
}

/// The kernels of an operation call, in order.
std::vector<BlockKernel> kernels_of(const OperationCall& call, const BlockDescription& layer,
                                    const deck::ModelConfig& m) {
  constexpr std::array passes{".forward", ".backward_input", ".backward_weight"};
  const Operation& op = at(layer, call.operation);
  const std::string pass = passes[static_cast<std::size_t>(call.pass)];
  const std::string whole_pass = call.pass == Pass::forward ? ".forward" : ".backward";
  const std::string norm = m.norm == NormKind::rms ? "rms_norm" : "layer_norm";
  const std::string kind(name_of(op.kind));
  switch (op.kind) {
    case OperationKind::norm:
      return {{norm + pass, call}};
    case OperationKind::head_norm:
    case OperationKind::width_norm:
      if (call.pass == Pass::forward) return {{kind + pass, call}};
      return {{kind + ".backward_weight", {call.operation, Pass::backward_weight}},
              {kind + pass, call}};
    case OperationKind::linear: {
      std::vector<BlockKernel> kernels{{op.name + pass, call}};
      kernels[0].call.sum = -1;
      if (call.fused >= 0)
        kernels.push_back(
            {at(layer, call.fused).name + ".backward", {call.fused, call.pass, call.operation}});
      if (call.accumulates())
        kernels.push_back({"accumulate", {call.operation, call.pass, -1, call.sum}});
      return kernels;
    }
    case OperationKind::rotary:
    case OperationKind::attention:
      return {{kind + whole_pass, call}};
    case OperationKind::activation:
      return {{op.name + whole_pass, call}};
    case OperationKind::dropout:
      if (m.dropout == 0) return {};
      return {{kind + whole_pass, call}};
    case OperationKind::residual:
      if (call.pass != Pass::forward) return {{"dropout.backward", call}};
      return {{call.fused >= 0 ? "residual_" + norm + pass : "residual_dropout.forward", call}};
    case OperationKind::embedding:
    case OperationKind::pick:
    case OperationKind::logits:
    case OperationKind::cross_entropy:
      break;  // not in layers
  }
  return {};
}

}  // namespace

std::vector<BlockKernel> block_kernels(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard, bool split_backward,
                                       const Machine& machine) {
  const auto programs = layer_programs(config, architecture, shard, split_backward, machine);
  const std::int64_t micros = config.micro_batches();
  std::vector<BlockKernel> kernels;
  for (std::size_t k = 0; k < programs.size(); ++k) {
    const BlockDescription& layer = architecture.layer_kinds()[k];
    std::int64_t layers = 0;
    for (const Stage stage : shard.stages)
      layers += architecture.count_kinds(shard.stage_layers[static_cast<std::size_t>(stage)])[k];
    std::vector<OperationCall> calls;
    for (const auto* phase : {&programs[k].forward, &programs[k].backward,
                              &programs[k].backward_input, &programs[k].backward_weight})
      calls.insert(calls.end(), phase->calls.begin(), phase->calls.end());
    std::ranges::stable_sort(calls, {}, [](const OperationCall& call) {
      return std::tuple(call.operation, call.pass, call.fused);
    });
    for (const OperationCall& call : calls)
      for (BlockKernel& kernel : kernels_of(call, layer, config.model)) {
        kernel.kind = k;
        kernel.calls = micros * layers;
        const auto found = std::ranges::find(kernels, kernel.name, &BlockKernel::name);
        if (found == kernels.end())
          kernels.push_back(std::move(kernel));
        else
          found->calls += kernel.calls;
      }
  }
  return kernels;
}

}  // namespace trireme::plan
