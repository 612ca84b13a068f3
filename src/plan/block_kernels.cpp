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
  const architecture::OperationRule& rule = rule_of(op.kind);
  const std::string norm = m.norm == NormKind::rms ? "rms_norm" : "layer_norm";
  const std::string name = rule.own_name                    ? op.name
                           : op.kind == OperationKind::norm ? norm
                                                            : std::string(rule.name);
  // An operation with weights has two backward passes, or one with kernels of both.
  const bool two_passes = rule.weight_pass != architecture::OperationRule::WeightPass::never;
  const bool forward = call.pass == Pass::forward;
  const std::string pass = forward || two_passes || rule.weights_with_input
                               ? passes[static_cast<std::size_t>(call.pass)]
                               : ".backward";
  if (op.kind == OperationKind::dropout && m.dropout == 0) return {};
  if (op.kind == OperationKind::residual) {
    if (!forward) return {{"dropout.backward", call}};
    return {{call.fused >= 0 ? "residual_" + norm + pass : "residual_dropout.forward", call}};
  }
  std::vector<BlockKernel> kernels;
  if (rule.weights_with_input && !forward)
    kernels.push_back({name + ".backward_weight", {call.operation, Pass::backward_weight}});
  kernels.push_back({name + pass, call});
  if (call.fused >= 0 && !forward)
    kernels.push_back(
        {at(layer, call.fused).name + ".backward", {call.fused, call.pass, call.operation}});
  if (!call.accumulates() || rule.adds_gradient) return kernels;
  kernels.front().call.sum = -1;
  kernels.push_back({"accumulate", {call.operation, call.pass, -1, call.sum}});
  return kernels;
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
