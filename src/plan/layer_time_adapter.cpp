#include <trireme/architecture/adapter.hpp>
#include <trireme/plan/layer_time.hpp>

namespace trireme::plan {

using architecture::Operation;
using architecture::Pass;
using architecture::Step;

/// The products with A and B, of which each reads or writes the activations once; backward_weight
/// computes x Aᵀ and dy B again.
void LayerTime::add_adapter(PassTime& time, const Part& part, const Step& step) const {
  const Operation& op = part.operations[static_cast<std::size_t>(step.operation)];
  const bool weight = step.pass == Pass::backward_weight;
  if (op.adapter.empty() || (weight && !op.trains_adapter())) return;
  const auto columns_of = [&](int tensor) {
    return architecture::columns_of(part.tensors[static_cast<std::size_t>(tensor)].columns, sizes_);
  };
  const std::int64_t in = columns_of(op.input);
  const std::int64_t rank = architecture_.model.adapter.rank;
  const std::int64_t T = sizes_.tokens;
  const auto add = [&](std::int64_t columns, std::int64_t depth, double times) {
    const ProductSizes sizes{T, columns, depth};
    const auto bytes =
        static_cast<double>((T * (columns + depth) + columns * depth) * sizes_.element);
    time.compute += times * kernels_.product(sizes, bytes);
    time.flops += times * sizes.flops();
  };
  const double times = weight ? 2 : 1;
  add(architecture::adapter_rows(op, rank), in, times);
  for (const architecture::AdapterPart& each : op.adapter)
    add(architecture::adapter_columns(part, op, each, sizes_).extent, rank, times);
  if (architecture_.model.adapter.dropout > 0)
    time.compute += kernels_.random(static_cast<double>(T * in));
  if (op.adapter.front().m == 0) return;
  // The outputs or their gradient times the scales; for the magnitudes the product again.
  const std::int64_t out = columns_of(op.output);
  const double passes = weight ? 3 : 1;
  time.compute += passes * kernels_.memory(static_cast<double>(2 * T * out * sizes_.element),
                                           machine_.kernels.residual);
  if (weight) add(out, in, 1);
}

}  // namespace trireme::plan
