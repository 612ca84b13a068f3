// FLOPs of the passes of each stage, from the operations of layers and head, and the resulting
// costs of instructions.
#include <trireme/plan/cost.hpp>

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/placement.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/plan/recompute.hpp>

namespace trireme::plan {

using schedule::Instr;
using schedule::Op;

namespace {

/// FLOPs of one layer.
StageFlops layer_flops(const architecture::Architecture& architecture,
                       const architecture::Kept& kept) {
  using namespace architecture;
  const deck::ModelConfig& m = architecture.model;
  StageFlops layer;
  for (const Operation& op : architecture.layer.operations) {
    const double products = 2 * products_per_token(op, m);
    layer.forward += products * product_factor(op, Pass::forward);
    layer.backward_input += products * product_factor(op, Pass::backward_input);
    layer.backward_weight += products * product_factor(op, Pass::backward_weight);
  }
  if (kept.empty()) return layer;
  const architecture::LocalSizes sizes =
      local_sizes(m, whole_model(architecture), 1, m.sequence, false,
                  host_logit_elements);  // no effect on layers
  const auto again = [&](const PhaseProgram& phase) {
    return 2 * products_again(architecture.layer, phase, m);
  };
  const LayerProgram whole = lower(architecture.layer, sizes, {kept, true, false, 4, 4});
  const LayerProgram split = lower(architecture.layer, sizes, {kept, true, true, 4, 4});
  layer.again = again(whole.backward);
  layer.again_input = again(split.backward_input);
  layer.again_weight = again(split.backward_weight);
  return layer;
}

}  // namespace

std::vector<StageFlops> stage_flops(const architecture::Architecture& architecture,
                                    const std::vector<layout::Slice>& stage_layers,
                                    const architecture::Kept& kept,
                                    architecture::HeadGradient head) {
  const StageFlops layer = layer_flops(architecture, kept);
  std::vector<StageFlops> flops;
  for (const layout::Slice& layers : stage_layers) {
    const auto n = static_cast<double>(layers.extent);
    flops.push_back({n * layer.forward, n * layer.backward_input, n * layer.backward_weight,
                     n * layer.again, n * layer.again_input, n * layer.again_weight});
  }
  const double products = 2 * architecture.head_products();
  if (shares_logits(head)) {
    const double part = products / static_cast<double>(flops.size());
    for (StageFlops& stage : flops) {
      stage.logits = 2 * part;
      stage.logits_gradient = part;
      if (computes_again(head)) stage.logits_again = part;
    }
    return flops;
  }
  StageFlops& last = flops.back();
  if (head == architecture::HeadGradient::with_losses) {
    last.forward += 3 * products;
    return flops;
  }
  last.forward += products;
  last.backward_input += products;
  last.backward_weight += products;
  if (head == architecture::HeadGradient::again) {
    last.again += 2 * architecture.logit_products();
    last.again_input += 2 * architecture.logit_products();
  }
  return flops;
}

std::vector<StageFlops> stage_flops(const architecture::Architecture& architecture,
                                    const deck::ParallelConfig& parallel) {
  return stage_flops(architecture, architecture::partition(architecture, parallel),
                     kept_tensors(parallel, architecture.layer),
                     architecture::head_gradient(parallel));
}

schedule::Cost flop_cost(std::vector<StageFlops> flops) {
  double unit = 0;
  for (const StageFlops& f : flops) unit += f.forward / static_cast<double>(flops.size());
  return [flops = std::move(flops), unit](const Instr& i) {
    const StageFlops& f = flops[static_cast<std::size_t>(i.stage)];
    switch (i.op) {
      case Op::forward:
      case Op::evaluate:
        return f.forward / unit;
      case Op::backward_input:
        return (f.again_input + f.backward_input) / unit;
      case Op::backward_weight:
        return (f.again_weight + f.backward_weight) / unit;
      case Op::backward:
        return (f.again + f.backward_input + f.backward_weight) / unit;
      case Op::logits:
        return f.logits / unit;
      case Op::evaluate_logits:
        return f.logits / 2 / unit;
      case Op::logits_gradient:
        return (f.logits_again + f.logits_gradient) / unit;
      case Op::look_up:
      case Op::combine_logits:
      case Op::look_up_gradient:
      case Op::share_output:
      case Op::share_gradient:
      case Op::send_activation:
      case Op::receive_activation:
      case Op::send_gradient:
      case Op::receive_gradient:
      case Op::reduce_gradients:
      case Op::reduce_tied:
      case Op::gradient_norm:
      case Op::optimizer_step:
      case Op::begin_tied:
      case Op::begin_norm:
        break;
    }
    return 0.0;
  };
}

}  // namespace trireme::plan
