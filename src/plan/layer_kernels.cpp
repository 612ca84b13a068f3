// Kernel calls of the steps of a rank's layer program, as made by model/operations.cpp.
#include <trireme/plan/layer_kernels.hpp>
#include <trireme/plan/memory.hpp>

#include <algorithm>
#include <array>
#include <tuple>

namespace trireme::plan {
namespace {

using architecture::LayerDescription;
using architecture::Operation;
using architecture::OperationKind;
using architecture::Pass;
using architecture::Step;

const Operation& at(const LayerDescription& layer, int operation) {
  return layer.operations[static_cast<std::size_t>(operation)];
}

/// The kernels called by a step, in order.
std::vector<LayerKernel> kernels_of(const Step& step, const LayerDescription& layer,
                                    const deck::ModelConfig& m) {
  constexpr std::array passes{".forward", ".backward_input", ".backward_weight"};
  const Operation& op = at(layer, step.operation);
  const std::string pass = passes[static_cast<std::size_t>(step.pass)];
  const std::string whole_pass = step.pass == Pass::forward ? ".forward" : ".backward";
  const std::string norm = m.norm == NormKind::rms ? "rms_norm" : "layer_norm";
  const std::string kind(name_of(op.kind));
  switch (op.kind) {
    case OperationKind::norm:
      return {{norm + pass, step}};
    case OperationKind::head_norm:
      if (step.pass == Pass::forward) return {{kind + pass, step}};
      return {{kind + ".backward_weight", {step.operation, Pass::backward_weight}},
              {kind + pass, step}};
    case OperationKind::linear: {
      std::vector<LayerKernel> kernels{{op.name + pass, step}};
      kernels[0].step.accumulate = false;
      if (step.fused >= 0)
        kernels.push_back(
            {at(layer, step.fused).name + ".backward", {step.fused, step.pass, step.operation}});
      if (step.accumulate) kernels.push_back({"accumulate", {step.operation, step.pass, -1, true}});
      return kernels;
    }
    case OperationKind::rotary:
    case OperationKind::attention:
      return {{kind + whole_pass, step}};
    case OperationKind::activation:
      return {{op.name + whole_pass, step}};
    case OperationKind::dropout:
      if (m.dropout == 0) return {};
      return {{kind + whole_pass, step}};
    case OperationKind::residual:
      if (step.pass != Pass::forward) return {{"dropout.backward", step}};
      return {{step.fused >= 0 ? "residual_" + norm + pass : "residual_dropout.forward", step}};
    case OperationKind::embedding:
    case OperationKind::pick:
    case OperationKind::logits:
    case OperationKind::cross_entropy:
      break;  // no part of a layer
  }
  return {};
}

}  // namespace

std::vector<LayerKernel> layer_kernels(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard, bool split_backward,
                                       const Machine& machine) {
  const auto programs = layer_programs(config, architecture, shard, split_backward, machine);
  const std::int64_t micros = config.micro_batches();
  std::vector<LayerKernel> kernels;
  for (std::size_t k = 0; k < programs.size(); ++k) {
    const LayerDescription& layer = architecture.layer_kinds()[k];
    std::int64_t layers = 0;
    for (const Stage stage : shard.stages)
      layers += architecture.count_kinds(shard.stage_layers[static_cast<std::size_t>(stage)])[k];
    std::vector<Step> steps;
    for (const auto* phase : {&programs[k].forward, &programs[k].backward,
                              &programs[k].backward_input, &programs[k].backward_weight})
      steps.insert(steps.end(), phase->steps.begin(), phase->steps.end());
    std::ranges::stable_sort(steps, {}, [](const Step& step) {
      return std::tuple(step.operation, step.pass, step.fused);
    });
    for (const Step& step : steps)
      for (LayerKernel& kernel : kernels_of(step, layer, config.model)) {
        kernel.kind = k;
        kernel.calls = micros * layers;
        const auto found = std::ranges::find(kernels, kernel.name, &LayerKernel::name);
        if (found == kernels.end())
          kernels.push_back(std::move(kernel));
        else
          found->calls += kernel.calls;
      }
  }
  return kernels;
}

}  // namespace trireme::plan
