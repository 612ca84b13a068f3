// FLOPs of the passes of each stage, from the operations of the layers and the head.
#include <trireme/plan/cost.hpp>

#include <trireme/architecture/placement.hpp>
#include <trireme/architecture/rank_sizes.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/plan/recompute.hpp>

#include <algorithm>

namespace trireme::plan {

using schedule::Instr;
using schedule::Op;

namespace {

/// FLOPs of a layer. `kept`: tensors that the layer keeps; empty: all tensors. Without `gradients`,
/// the layer has only a forward pass.
StageFlops layer_flops(const architecture::Architecture& architecture,
                       const architecture::BlockDescription& description,
                       const architecture::Kept& kept, bool gradients) {
  using namespace architecture;
  const deck::ModelConfig& m = architecture.model;
  StageFlops layer;
  for (const Operation& op : description.operations) {
    const double products = 2 * products_per_token(description, op, m);
    layer.forward += products * product_factor(op, Pass::forward);
    if (!gradients) continue;
    layer.backward_input += products * product_factor(op, Pass::backward_input);
    if (op.arrays.empty() || op.trains_product())
      layer.backward_weight += products * product_factor(op, Pass::backward_weight);
  }
  if (kept.empty() || !gradients) return layer;
  const architecture::RankSizes sizes =
      rank_sizes(m, whole_model(architecture), 1, m.sequence, false,
                 host_logit_elements);  // no effect on layers
  const auto again = [&](const PhaseProgram& phase) {
    return 2 * products_again(description, phase, m);
  };
  const BlockProgram whole = lower(description, sizes, {kept, true, false, 4, 4});
  const BlockProgram split = lower(description, sizes, {kept, true, true, 4, 4});
  layer.again = again(whole.backward);
  layer.again_input = again(split.backward_input);
  layer.again_weight = again(split.backward_weight);
  return layer;
}

}  // namespace

void StageFlops::add_layers(std::int64_t number, const StageFlops& layer) {
  const auto n = static_cast<double>(number);
  forward += n * layer.forward;
  backward_input += n * layer.backward_input;
  backward_weight += n * layer.backward_weight;
  again += n * layer.again;
  again_input += n * layer.again_input;
  again_weight += n * layer.again_weight;
}

std::vector<StageFlops> stage_flops(const architecture::Architecture& architecture,
                                    const std::vector<layout::Slice>& stage_layers,
                                    const std::vector<architecture::Kept>& kept,
                                    architecture::HeadGradient head) {
  const auto of_kinds = [&](bool gradients) {
    std::vector<StageFlops> all;
    for (const architecture::BlockDescription& layer : architecture.layer_kinds())
      all.push_back(layer_flops(architecture, layer,
                                kept.empty() ? architecture::Kept{} : kept[all.size()], gradients));
    return all;
  };
  const std::vector<StageFlops> with = of_kinds(true);
  const std::vector<StageFlops> without = of_kinds(false);
  std::vector<StageFlops> flops;
  for (const layout::Slice& layers : stage_layers) {
    StageFlops& stage = flops.emplace_back();
    const auto add = [&](const layout::Slice& some, const std::vector<StageFlops>& kinds) {
      const std::vector<std::int64_t> counts = architecture.count_kinds(some);
      for (std::size_t k = 0; k < counts.size(); ++k) stage.add_layers(counts[k], kinds[k]);
    };
    const std::int64_t first = architecture.first_with_backward(layers);
    add({layers.offset, first - layers.offset}, without);
    add({first, layers.end() - first}, with);
  }
  if (const double patches = 2 * architecture.embedding_products(); patches > 0) {
    flops.front().forward += patches;
    flops.front().backward_weight += patches - 2 * architecture.frozen_embedding_products();
  }
  const double products = 2 * architecture.head_products();
  const double gradients = products - 2 * architecture.frozen_head_products();  // weight gradients
  if (shares_logits(head)) {
    const auto stages = static_cast<double>(flops.size());
    for (StageFlops& stage : flops) {
      stage.logits = 2 * products / stages;
      stage.logits_gradient = gradients / stages;
      if (computes_again(head)) stage.logits_again = products / stages;
    }
    return flops;
  }
  StageFlops& last = flops.back();
  if (head == architecture::HeadGradient::with_losses) {
    last.forward += 2 * products + gradients;
    return flops;
  }
  last.forward += products;
  last.backward_input += products;
  last.backward_weight += gradients;
  if (head == architecture::HeadGradient::again) {
    last.again += 2 * architecture.logit_products();
    last.again_input += 2 * architecture.logit_products();
  }
  return flops;
}

std::vector<StageFlops> stage_flops(const architecture::Architecture& architecture,
                                    const deck::ParallelConfig& parallel) {
  return stage_flops(architecture, architecture::partition(architecture, parallel),
                     kept_tensors(parallel, architecture), architecture::head_gradient(parallel));
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
