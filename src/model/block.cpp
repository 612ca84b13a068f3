// Runs the calls of a block's program. Each call is a pass of one operation, sometimes fused with
// another operation.
#include <trireme/model/block.hpp>

#include <trireme/architecture/adapter.hpp>
#include <trireme/architecture/fp8.hpp>
#include <trireme/architecture/operation_calls.hpp>
#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/model/attention_operations.hpp>

#include <algorithm>

namespace trireme::model {

using architecture::Pass;

template <class P>
Block<P>::Block(const BlockPlan& plan, const Parameters<P>& parameters,
                const architecture::Architecture& architecture, const TensorAxis& axis,
                std::int64_t number)
    : plan_(plan), number_(number) {
  const OperationPlace<P> place{parameters, architecture, axis.of(plan.description.stream),
                                axis,       plan,         number};
  for (const architecture::Operation& op : plan.description.operations)
    operations_.push_back(make_operation(op, place));
}

template <class P>
void Block<P>::take_memory(Arena& arena) {
  for (const auto& operation : operations_) operation->take_memory(arena);
}

template <class P>
auto Block<P>::input(const BlockMemory& memory) const -> View2<T> {
  return View2<T>(reinterpret_cast<T*>(memory.kept), static_cast<std::size_t>(plan_.sizes.rows),
                  static_cast<std::size_t>(plan_.sizes.hidden));
}

/// Runs a backward_input call, and adds its contribution to the sum of the other contributions to
/// the gradient of the input, unless the operation adds it.
template <class P>
void Block<P>::backward_input(const architecture::OperationCall& call,
                              const architecture::PhaseProgram& phase,
                              const PassArguments<P>& arguments, BlockValues<P>& values) const {
  const BlockOperation<P>& op = operation(call.operation);
  const BlockOperation<P>* fused = call.fused < 0 ? nullptr : &operation(call.fused);
  if (!call.accumulates()) return op.backward_input(arguments, fused, false);
  const int target = gradient_target(plan_.description, call);
  const auto place = [&](int t) { return phase.gradients[static_cast<std::size_t>(t)]; };
  if (call.contribution.memory != architecture::Place::Memory::none) {
    const View2<T> sum = values.gradient(target);
    const View2<T> contribution = values.write_contribution(target, call.contribution);
    op.backward_input(arguments, fused, false);
    values.write_contribution(-1, {});
    return kernels::accumulate<T>(arguments.handle, flat(sum), flat<const T>(contribution));
  }
  const bool in_place = place(call.sum) == place(target);
  op.backward_input(arguments, fused, in_place);
  if (!in_place)
    kernels::accumulate<T>(arguments.handle, flat(values.gradient(target)),
                           flat<const T>(values.gradient(call.sum)));
}

template <class P>
void Block<P>::run(const architecture::OperationCall& call, const architecture::PhaseProgram& phase,
                   const PassArguments<P>& arguments, BlockValues<P>& values) const {
  switch (call.pass) {
    case Pass::forward:
      return operation(call.operation)
          .forward(arguments, call.fused < 0 ? nullptr : &operation(call.fused));
    case Pass::backward_input:
      return backward_input(call, phase, arguments, values);
    case Pass::backward_weight:
      return operation(call.operation).backward_weight(arguments);
  }
}

template <class P>
bool Block<P>::has_rows(const architecture::Operation& op) const {
  const auto& tensors = plan_.description.tensors;
  const auto rows = [&](int tensor) {
    return architecture::rows_of(tensors[static_cast<std::size_t>(tensor)].rows, plan_.sizes);
  };
  return rows(op.output) > 0 || std::ranges::any_of(op.inputs, [&](int input) {
           return tensors[static_cast<std::size_t>(input)].home == architecture::Home::layer &&
                  rows(input) > 0;
         });
}

template <class P>
void Block<P>::run(const architecture::PhaseProgram& phase, const Handle& handle, View2<T> stream,
                   View2<T> output, const BlockMemory& memory, const BlockScratch<P>& scratch,
                   const MicroContext& context, const Decoding<P>* decoding) const {
  BlockValues<P> values(plan_, phase, memory, scratch.transient, stream, output);
  const PassArguments<P> arguments{handle, values, scratch, context, decoding};
  for (const architecture::OperationCall& call : phase.calls) {
    const auto& op = plan_.description.operations[static_cast<std::size_t>(call.operation)];
    if (decoding != nullptr && !has_rows(op)) continue;
    if (call.pass == Pass::backward_input && computes_weights_with_input(op))
      operation(call.operation).backward_weight(arguments);
    run(call, phase, arguments, values);
  }
}

template <class P>
void Block<P>::forward(const Handle& handle, View2<T> out, const BlockMemory& memory,
                       const BlockScratch<P>& scratch, const MicroContext& context) const {
  run(plan_.program.forward, handle, {}, out, memory, scratch, context);
}

template <class P>
void Block<P>::backward(const Handle& handle, View2<T> dx, const BlockMemory& memory,
                        const BlockScratch<P>& scratch, const MicroContext& context) const {
  run(plan_.program.backward, handle, dx, {}, memory, scratch, context);
}

template <class P>
void Block<P>::backward_losses(const Handle& handle, const BlockMemory& memory,
                               const BlockScratch<P>& scratch, const MicroContext& context) const {
  run(plan_.program.losses, handle, {}, {}, memory, scratch, context);
}

template <class P>
void Block<P>::backward_input(const Handle& handle, View2<T> dx, const BlockMemory& memory,
                              const BlockScratch<P>& scratch, const MicroContext& context) const {
  run(plan_.program.backward_input, handle, dx, {}, memory, scratch, context);
}

template <class P>
void Block<P>::backward_weight(const Handle& handle, const BlockMemory& memory,
                               const BlockScratch<P>& scratch, const MicroContext& context) const {
  run(plan_.program.backward_weight, handle, {}, {}, memory, scratch, context);
}

template <class P>
void Block<P>::decode(const Handle& handle, View2<T> x, const BlockMemory& memory,
                      const BlockScratch<P>& scratch, const Decoding<P>& decoding,
                      const MicroContext& context) const {
  run(plan_.program.forward, handle, {}, x, memory, scratch, context, &decoding);
}

template <class P>
BlockScratch<P> take_block_scratch(Arena& arena, std::span<const BlockPlan> plans,
                                   const deck::ModelConfig& m, bool training,
                                   const kernels::KernelChoice& choice) {
  using T = typename P::Compute;
  const architecture::RankSizes& n = plans.front().sizes;  // of the embedding
  const std::int64_t tokens = std::max(n.tokens, n.source.tokens);
  const deck::ModelConfig source_model = m.of_source();
  const auto model_of = [&](const BlockPlan& plan) -> const deck::ModelConfig& {
    return plan.description.stream == architecture::Stream::source ? source_model : m;
  };
  std::int64_t attention = 0, gathered = std::max(n.hidden, n.source.hidden);
  Bytes transient = 0, codes = 0;
  architecture::AdapterScratch adapters;
  for (const BlockPlan& plan : plans) {
    for (const architecture::Operation& op : plan.description.operations)
      if (op.kind == architecture::OperationKind::attention)
        attention =
            std::max(attention, kernels::attention_workspace_elements<T>(
                                    choice, attention_shape(plan.sizes, model_of(plan), op)));
    transient = std::max(transient, plan.program.transient_bytes);
    gathered = std::max(gathered, architecture::gathered_columns(plan.description, n));
    codes = std::max(codes, architecture::fp8_code_bytes(plan.description, n));
    adapters.include(architecture::adapter_scratch(plan.description, n, m.adapter));
  }
  BlockScratch<P> scratch;
  if (n.cuts_tokens) scratch.gathered = arena.take<T>(tokens * gathered);
  if (n.context_ranks > 1)
    scratch.ring = {arena.take<T>(n.ring_values()),
                    arena.take<Accumulate<T>>(n.ring_sums(training, is_narrow<T>))};
  else if (training)
    scratch.attention_work = arena.take<Accumulate<T>>(attention);
  scratch.transient = arena.take<std::byte>(transient).data();
  if (plans.front().fp8 != nullptr) scratch.codes = arena.take<std::byte>(codes).data();
  if (adapters.rows == 0) return scratch;
  scratch.adapter_rows = arena.take<T>(tokens * adapters.rows);
  if (adapters.scaled > 0) scratch.adapter_product = arena.take<T>(adapters.scaled);
  if (!training) return scratch;
  scratch.adapter_gradients = arena.take<T>(tokens * adapters.rows);
  if (adapters.columns > 0) scratch.adapter_input = arena.take<T>(tokens * adapters.columns);
  return scratch;
}

#define TRIREME_INSTANTIATE(P)                                                       \
  template class Block<P>;                                                           \
  template BlockScratch<P> take_block_scratch<P>(Arena&, std::span<const BlockPlan>, \
                                                 const deck::ModelConfig&, bool,     \
                                                 const kernels::KernelChoice&);
TRIREME_INSTANTIATE(Fp32)
TRIREME_INSTANTIATE(Fp64)
TRIREME_INSTANTIATE(MixedBf16)
TRIREME_INSTANTIATE(MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
