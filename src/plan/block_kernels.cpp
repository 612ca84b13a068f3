// Kernels of the operation calls in a rank's block programs, as made by model/operations.cpp.
#include <trireme/plan/block_kernels.hpp>

#include <trireme/architecture/ends.hpp>
#include <trireme/plan/memory.hpp>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <tuple>
#include <utility>

namespace trireme::plan {
namespace {

using architecture::BlockDescription;
using architecture::BlockProgram;
using architecture::Operation;
using architecture::OperationCall;
using architecture::OperationKind;
using architecture::Pass;
using architecture::PhaseProgram;

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
  const bool forward = call.pass == Pass::forward;
  const bool weighs = rule.weight_pass != architecture::OperationRule::WeightPass::never;
  // Two backward passes, or one with kernels of both.
  const bool two =
      (computes_weights_with_input(op) && op.arrays.size() > 0) || (weighs && rule.has_input_pass);
  const std::string pass =
      forward || two ? passes[static_cast<std::size_t>(call.pass)] : ".backward";
  if (op.kind == OperationKind::dropout && m.dropout == 0) return {};
  if (forward && call.fused >= 0) return {{"residual_" + norm + pass, call}};
  if (const auto given = rule.kernels[forward ? 0 : 1]; !given.empty())
    return {{std::string(given), call}};
  std::vector<BlockKernel> kernels;
  if (computes_weights_with_input(op) && !forward && op.trains())
    kernels.push_back({name + ".backward_weight", {call.operation, Pass::backward_weight}});
  kernels.push_back({name + pass, call});
  if (call.fused >= 0)
    kernels.push_back({at(layer, call.fused).name + ".backward",
                       {call.fused, call.pass},
                       /*after_product=*/true});
  if (!call.accumulates() || rule.adds_gradient) return kernels;
  kernels.front().call.sum = -1;
  kernels.push_back({"accumulate", {call.operation, call.pass, -1, call.sum}});
  return kernels;
}

using PhaseOf = PhaseProgram BlockProgram::*;

/// The kernels of a program's phases in the order of the operations and passes.
std::vector<BlockKernel> kernels_of(const BlockProgram& program, const BlockDescription& part,
                                    std::initializer_list<PhaseOf> phases,
                                    const deck::ModelConfig& m) {
  std::vector<std::pair<OperationCall, PhaseOf>> calls;
  for (const PhaseOf phase : phases)
    for (const OperationCall& call : (program.*phase).calls) calls.emplace_back(call, phase);
  std::ranges::stable_sort(calls, {}, [](const auto& each) {
    const OperationCall& call = each.first;
    return std::tuple(call.operation, call.pass, call.fused);
  });
  std::vector<BlockKernel> kernels;
  for (const auto& [call, phase] : calls)
    for (BlockKernel& kernel : kernels_of(call, part, m)) {
      kernel.phase = phase;
      kernels.push_back(std::move(kernel));
    }
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
    std::int64_t layers = 0;
    for (const Stage stage : shard.stages)
      layers += architecture.count_kinds(shard.stage_layers[static_cast<std::size_t>(stage)])[k];
    for (BlockKernel& kernel :
         kernels_of(programs[k], architecture.layer_kinds()[k],
                    {&BlockProgram::forward, &BlockProgram::backward, &BlockProgram::backward_input,
                     &BlockProgram::backward_weight},
                    config.model)) {
      kernel.kind = k + 1;
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

std::vector<BlockKernel> end_kernels(const deck::Config& config,
                                     const architecture::Architecture& architecture) {
  const BlockDescription& embedding = architecture.embedding();
  const BlockDescription head =
      describe_head(config.model, architecture::head_gradient(config.parallel));
  const architecture::RankSizes sizes{};  // the calls do not depend on the sizes
  const Bytes element = size_of(config.precision.compute);
  std::vector<BlockKernel> kernels;
  const auto add = [&](std::size_t kind, const BlockProgram& program, const BlockDescription& part,
                       PhaseOf backward) {
    for (BlockKernel& kernel :
         kernels_of(program, part, {&BlockProgram::forward, backward}, config.model)) {
      const OperationKind of = at(part, kernel.call.operation).kind;
      if (rule_of(of).rate != architecture::KernelRate::embedding) continue;
      kernel.kind = kind;
      kernel.calls = config.micro_batches();
      const auto found = std::ranges::find(kernels, kernel.name, &BlockKernel::name);
      if (found == kernels.end())
        kernels.push_back(std::move(kernel));
      else
        found->calls += kernel.calls;
    }
  };
  add(0, lower(embedding, sizes, {kept_for_evaluation(embedding), true, false, element, element}),
      embedding, &BlockProgram::backward);
  add(architecture.kinds.size() - 1, lower_head(head, sizes, element, element), head,
      &BlockProgram::losses);
  return kernels;
}

}  // namespace trireme::plan
