#include <trireme/plan/cost.hpp>

namespace trireme::plan {

using schedule::Instr;
using schedule::Op;

std::vector<StageFlops> stage_flops(const architecture::Architecture& architecture,
                                    const std::vector<layout::Slice>& stage_layers) {
  const deck::ModelConfig& m = architecture.model;
  const auto layer_count = static_cast<double>(m.layers);
  const double head = architecture.head_products();
  const double products = static_cast<double>(architecture.layer_parameters()) / layer_count;
  const double attention = architecture.attention_products() / layer_count;
  const double down = static_cast<double>(m.feed_forward) * static_cast<double>(m.hidden);
  std::vector<StageFlops> flops;
  for (const layout::Slice& layers : stage_layers) {
    const auto n = static_cast<double>(layers.extent);
    // computed again up to the feed-forward's inner activations
    const double again = n * (2 * (products - down) + 2 * attention);
    flops.push_back({n * (2 * products + 2 * attention), n * (2 * products + 4 * attention),
                     n * 2 * products, again});
  }
  flops.back().forward += 6 * head;
  return flops;
}

schedule::Cost flop_cost(std::vector<StageFlops> flops, Recompute recompute) {
  if (recompute != Recompute::full)
    for (StageFlops& f : flops) f.again = 0;
  double unit = 0;
  for (const StageFlops& f : flops) unit += f.forward / static_cast<double>(flops.size());
  return [flops = std::move(flops), unit](const Instr& i) {
    const StageFlops& f = flops[static_cast<std::size_t>(i.stage)];
    switch (i.op) {
      case Op::forward:
      case Op::evaluate:
        return f.forward / unit;
      case Op::backward_input:
        return (f.again + f.backward_input) / unit;
      case Op::backward_weight:
        return (f.again + f.backward_weight) / unit;
      case Op::backward:
        return (f.again + f.backward_input + f.backward_weight) / unit;
      case Op::send_activation:
      case Op::receive_activation:
      case Op::send_gradient:
      case Op::receive_gradient:
      case Op::reduce_gradients:
      case Op::reduce_tied:
      case Op::gradient_norm:
      case Op::optimizer_step:
        break;
    }
    return 0.0;
  };
}

}  // namespace trireme::plan
