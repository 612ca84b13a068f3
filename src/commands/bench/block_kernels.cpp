// trireme bench, section kernels: the kernels of the embedding, the layers and the head except
// products and losses. A block of each kind, with the parameters of one layer and the memory of its
// plan, runs the calls of its program one at a time, without messages.
#include <trireme/architecture/objective.hpp>
#include <trireme/architecture/operation_calls.hpp>
#include <trireme/commands/bench/kernels.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/model/block.hpp>
#include <trireme/plan/recompute.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace trireme::commands {
namespace {

using architecture::at;
using architecture::BlockDescription;
using architecture::Pass;
using architecture::Place;
using architecture::Value;

/// The rank's shard of one block. Every block is a stage of its own.
architecture::Shard shard_of_block(architecture::Shard shard, std::int64_t block,
                                   std::int64_t layers) {
  shard.stage_layers = {{0, 0}};
  for (std::int64_t layer = 0; layer < layers; ++layer) shard.stage_layers.push_back({layer, 1});
  shard.stage_layers.push_back({layers, 0});
  shard.stages = {static_cast<Stage>(block)};
  if (block > 0) shard.vocabulary_stages = 1;  // other blocks have no part of a shared table
  return shard;
}

template <class P>
model::BlockPlan plan_of(const KernelBench& b, std::size_t kind) {
  const architecture::Architecture& a = b.architecture();
  const deck::ParallelConfig& parallel = b.config().parallel;
  if (kind + 1 == a.kinds.size())
    return model::plan_head<P>(a.model, b.sizes(), architecture::head_gradient(parallel));
  return model::plan_blocks<P>(a, b.sizes(), plan::kept_tensors(parallel, a), true,
                               b.shard().split_backward)[kind];
}

/// A block of the model with memory for one micro-batch.
template <class P>
class MeasuredBlock {
 public:
  using T = typename P::Compute;

  MeasuredBlock(const KernelBench& b, std::size_t kind, const kernels::Handle& handle)
      : architecture_(b.architecture()),
        handle_(handle),
        number_(std::ranges::find(architecture_.blocks, kind, &architecture::Block::kind) -
                architecture_.blocks.begin()),
        plan_(plan_of<P>(b, kind)),
        axis_(model::TensorAxis::without_messages(
            b.shard().shard.tensor_rank, b.shard().shard.tensor_size, b.sizes().tokens,
            b.config().parallel.sequence_parallel, b.sizes().source.tokens,
            model::ExpertAxis::without_messages(b.shard().shard.expert_rank,
                                                b.shard().shard.expert_size))),
        parameters_(architecture_,
                    shard_of_block(b.shard().shard, number_, architecture_.model.all_layers()),
                    true),
        block_(plan_, parameters_, architecture_, axis_, number_) {
    context_.seed = 1;
    context_.sequence = plan_.description.stream == architecture::Stream::source
                            ? architecture_.model.source_sequence()
                            : architecture_.model.sequence;
    context_.dropout = architecture_.model.dropout;
    take_fields();
    Arena arena;
    take_memory(arena);
    arena_ = Arena("bench", arena.used());
    take_memory(arena_);
    // Initial gains are neutral. The values of other arrays do not matter.
    for (const auto& entry : parameters_.entries())
      if (entry.spec->decay)
        kernels::fill_operand<T>(handle_, entry.weight.data, 0);
      else
        parameters_.initialise(handle_, entry, 1);
  }

  const BlockDescription& description() const { return plan_.description; }

  void measure(KernelBench& b, const plan::BlockKernel& k, BenchKernel kernel) const {
    architecture::PhaseProgram phase = plan_.program.*k.phase;
    const architecture::CallEffects effects = architecture::effects(plan_.description, k.call);
    for (const auto& [tensor, place] : decisions_)
      if (phase.tensors[at(tensor)].memory == Place::Memory::none)
        phase.tensors[at(tensor)] = place;
    for (const auto* values : {&effects.reads, &effects.writes})
      for (const Value& v : *values)
        if (Place& place = (v.gradient ? phase.gradients : phase.tensors)[at(v.tensor)];
            place.memory == Place::Memory::none)
          place = spare_;
    model::BlockValues<P> values(plan_, phase, memory_, scratch_.transient, stream_, output_);
    const model::PassArguments<P> arguments{handle_, values, scratch_, context_};
    const architecture::Operation& op = plan_.description.operations[at(k.call.operation)];
    for (const int t : op.saved) fill(values, {t});
    for (const Value& v : effects.writes) fill(values, v);
    for (const Value& v : effects.reads) fill(values, v);
    decide(op, arguments);
    if (const auto arithmetic = block_.operation(k.call.operation).evaluations(arguments)) {
      kernel.cost.arithmetic = arithmetic->function;
      kernel.cost.elements = arithmetic->count;
    }
    // Values that the call may multiply in place. Sums of gradients only grow linearly.
    const bool scales = rule_of(op.kind).scales_gradient;
    std::vector<View1<T>> changed;
    for (const Value& v : effects.reads) {
      if (v.gradient && v.tensor == k.call.sum) continue;
      const std::optional<View1<T>> read = list_of(values, v);
      const auto is_read = [&](const Value& w) {
        const std::optional<View1<T>> written = list_of(values, w);
        return written && written->data() == read->data();
      };
      if (read && ((v.gradient && scales && k.call.pass == Pass::backward_weight) ||
                   std::ranges::any_of(effects.writes, is_read)))
        changed.push_back(*read);
    }
    std::vector<BenchArray<T>> copies;
    for (const View1<T>& each : changed) copies.emplace_back(handle_, extent(each, 0));
    const auto restore = [&] {
      for (std::size_t i = 0; i < changed.size(); ++i)
        kernels::copy<T>(handle_, changed[i], View1<const T>(copies[i].list()));
    };
    b.measure(
        kernel, [&] { block_.run(k.call, phase, arguments, values); },
        changed.empty() ? std::function<void()>() : restore);
  }

 private:
  /// Fills each field of the batch with valid row indices of the table or tensor that the field
  /// selects. Queries see all keys of their sample.
  void take_fields() {
    for (const auto& field : architecture::objective_of(architecture_.model).fields) {
      const auto rows = static_cast<std::size_t>(rows_of(field.rows, plan_.sizes));
      if (field.name == architecture::image_rows_field) {
        std::vector<std::int32_t> places(rows, -1);
        for (std::size_t i = 0; i < rows; ++i)
          if (const auto place = static_cast<std::int64_t>(i) % architecture_.model.sequence;
              place < architecture_.model.projected_rows())
            places[i] = static_cast<std::int32_t>(place);
        ids_.emplace_back(handle_, places);
        fields_.push_back(ids_.back().list());
        continue;
      }
      if (field.name == architecture::key_end_field && architecture_.model.vision.present()) {
        std::vector<std::int32_t> ends(rows);  // of text
        for (std::size_t i = 0; i < rows; ++i)
          ends[i] = static_cast<std::int32_t>(
              static_cast<std::int64_t>(i) % architecture_.model.sequence + 1);
        ids_.emplace_back(handle_, ends);
        fields_.push_back(ids_.back().list());
        continue;
      }
      if (field.at_layers) {
        const std::int64_t keys = architecture_.model.encoder.sequence;
        const bool is_end = field.name.ends_with("_end");
        ids_.emplace_back(
            handle_, std::vector<std::int32_t>(rows, static_cast<std::int32_t>(is_end ? keys : 0)));
        fields_.push_back(ids_.back().list());
        continue;
      }
      std::int64_t below = 1;
      for (const architecture::Operation& op : plan_.description.operations)
        for (const int t : op.inputs)
          if (plan_.description.tensors[at(t)].name == field.name) {
            const auto& values = plan_.description.tensors[at(op.input())];
            below = op.arrays.empty() ? all_rows_of(values.rows, plan_.sizes)
                                      : op.arrays.front().shape.front();
          }
      ids_.emplace_back(handle_, static_cast<std::int64_t>(rows), below);
      fields_.push_back(ids_.back().list());
    }
    context_.fields = fields_;
  }

  void take_memory(Arena& arena) {
    memory_ = model::take_block_memory(arena, plan_.program.kept_bytes, plan_.program.work_bytes);
    const Bytes values = architecture::value_bytes(plan_.sizes, sizeof(T), sizeof(Accumulate<T>));
    memory_.values = arena.take<std::byte>(values).data();
    memory_.value_gradients = arena.take<std::byte>(values).data();
    stream_ = arena.take<T>(plan_.sizes.rows, plan_.sizes.hidden);
    output_ = arena.take<T>(plan_.sizes.rows, plan_.sizes.hidden);
    scratch_ = model::take_block_scratch<P>(arena, {&plan_, 1}, architecture_.model, true,
                                            handle_.choice());
    Bytes most = 0;
    for (const architecture::Tensor& t : plan_.description.tensors)
      most = std::max(most, bytes_of(t, plan_.sizes, sizeof(T), sizeof(Accumulate<T>)));
    spare_ = {Place::Memory::transient, plan_.program.transient_bytes};
    if (arena.data() != nullptr) spare_.offset = arena.data() + arena.used() - scratch_.transient;
    arena.take<std::byte>(most);
    take_decisions(arena);
  }

  /// Takes memory for all tensors of the operations that decide: phases may have none for them.
  void take_decisions(Arena& arena) {
    decisions_.clear();
    for (std::size_t i = 0; i < plan_.description.operations.size(); ++i) {
      if (!rule_of(plan_.description.operations[i].kind).decides) continue;
      const auto e = architecture::effects(plan_.description, {static_cast<int>(i), Pass::forward});
      const auto take = [&](int tensor) {
        Place place{Place::Memory::transient, 0};
        if (arena.data() != nullptr)
          place.offset = arena.data() + arena.used() - scratch_.transient;
        decisions_.emplace(tensor, place);
        arena.take<std::byte>(bytes_of(plan_.description.tensors[at(tensor)], plan_.sizes,
                                       sizeof(T), sizeof(Accumulate<T>)));
      };
      for (const auto* values : {&e.reads, &e.writes})
        for (const Value& v : *values) take(v.tensor);
      for (const int tensor : e.scratch) take(tensor);
    }
  }

  /// The elements of a value with the type of activations.
  std::optional<View1<T>> list_of(const model::BlockValues<P>& values, const Value& v) const {
    if (plan_.description.tensors[at(v.tensor)].numbers != architecture::Numbers::compute)
      return {};
    return flat(v.gradient ? values.gradient(v.tensor) : values.matrix(v.tensor));
  }

  /// Fills a value with normal numbers, or with 1 if it is a statistic: a factor in place is then
  /// neutral.
  void fill(const model::BlockValues<P>& values, const Value& v) const {
    using architecture::Numbers;
    if (const auto list = list_of(values, v); list && list->data() != nullptr)
      kernels::fill_operand<T>(handle_, *list, 0);
    if (plan_.description.tensors[at(v.tensor)].numbers != Numbers::accumulate) return;
    const auto statistics = v.gradient ? values.gradient_list(v.tensor) : values.list(v.tensor);
    if (statistics.data() != nullptr) kernels::fill<Accumulate<T>>(handle_, statistics, 1);
  }

  /// Computes the inputs of an operation that are decisions, for which no other values are valid.
  void decide(const architecture::Operation& op, const model::PassArguments<P>& arguments) const {
    for (std::size_t i = 0; i < plan_.description.operations.size(); ++i) {
      const architecture::Operation& other = plan_.description.operations[i];
      if (!rule_of(other.kind).decides) continue;
      const bool is_read = std::ranges::any_of(op.inputs, [&](int t) {
        return t == other.output || std::ranges::count(other.saved, t) > 0;
      });
      if (other.kind != op.kind && !is_read) continue;
      kernels::fill_operand<Accumulate<T>>(handle_, arguments.values.list(other.input()), 0);
      block_.operation(static_cast<int>(i)).forward(arguments, nullptr);
    }
  }

  const architecture::Architecture& architecture_;
  const kernels::Handle& handle_;
  std::int64_t number_;
  model::BlockPlan plan_;
  model::TensorAxis axis_;
  model::Parameters<P> parameters_;
  model::Block<P> block_;
  model::MicroContext context_;
  std::vector<BenchIds> ids_;
  std::vector<View1<std::int32_t>> fields_;
  Arena arena_;
  model::BlockMemory memory_;
  model::BlockScratch<P> scratch_;
  View2<T> stream_, output_;  // [R, D]
  /// Memory for a gradient that has none in its phase, because one kernel of a library computes
  /// this gradient and the next one.
  Place spare_;
  /// Memory of the tensors of operations that decide, by tensor.
  std::map<int, Place> decisions_;
};

/// The name, sizes, calls per step and cost of a kernel. Its rows and columns are the rows and
/// columns of the operation's output that this rank computes; for a sum of two gradients, the rows
/// and columns of the gradient. The calls of a norm include the calls of the head's norm.
BenchKernel kernel_of(const KernelBench& b, const plan::BlockKernel& k, bool here) {
  const architecture::Architecture& a = b.architecture();
  const BlockDescription& part = a.kinds[k.kind];
  const plan::TypedSizes n = b.sizes().of(part.stream);
  const architecture::Operation& op = part.operations[at(k.call.operation)];
  const architecture::OperationRule& rule = rule_of(op.kind);
  const bool adds = k.call.accumulates() && !rule.adds_gradient;
  const architecture::Tensor& tensor = part.tensors[at(adds ? op.input() : op.output)];
  const bool of_all = op.cut == architecture::Cut::inputs && !adds;
  const bool head_too = op.kind == architecture::OperationKind::norm && b.shard().has_head;
  BenchKernel kernel{k.name};
  kernel.rows = of_all ? n.tokens : rows_of(tensor.rows, n);
  kernel.columns = columns_of(op.changed.value_or(tensor.columns), n);
  kernel.here = (here || head_too) && kernel.rows * kernel.columns > 0;
  kernel.calls = static_cast<double>(k.calls + (head_too ? b.shard().micros : 0));
  const auto bytes = static_cast<double>(kernel.rows * kernel.columns * n.element);
  const auto least = architecture::least_bytes(part, k.call, n, n.element, n.accumulate);
  kernel.cost = adds ? traffic(bytes, 0, bytes) : BenchCost{least.moved, least.resident};
  if (!adds) kernel.cost.flops = rank_flops(part, op, k.call.pass, a.model, n);
  return kernel;
}

template <class P>
class BlockKernels {
 public:
  using T = typename P::Compute;

  explicit BlockKernels(KernelBench& bench) : b_(bench) {}

  /// `here`: whether this rank runs the kernel.
  void measure(const plan::BlockKernel& k, bool here) {
    const architecture::Operation& op =
        b_.architecture().kinds[k.kind].operations[at(k.call.operation)];
    const bool multiplies = product_factor(op, Pass::forward) > 0;
    // Products other than `linear` are measured here, the others in a section of their own.
    const bool measured = op.kind == architecture::OperationKind::router ||
                          op.kind == architecture::OperationKind::expert_product ||
                          op.kind == architecture::OperationKind::expert_rounds ||
                          op.kind == architecture::OperationKind::row_product;
    BenchKernel kernel = kernel_of(b_, k, here);
    if (k.after_product &&
        kernels::fuses_gelu(b_.handle(), dtype_of<T>, b_.model().gelu, kernel.columns))
      kernel.calls = 0;  // fused into the preceding product
    if (is_product(op) && !measured) {
      if (k.call.accumulates()) measure_sum(kernel);
      return;
    }
    measure(k, kernel, b_.handle());
    if (multiplies && !measured) measure_beside(k, kernel);
  }

 private:
  void measure(const plan::BlockKernel& k, const BenchKernel& kernel,
               const kernels::Handle& handle) {
    if (!kernel.here) return b_.measure(kernel, {});
    if (&handle != &b_.handle()) return MeasuredBlock<P>(b_, k.kind, handle).measure(b_, k, kernel);
    if (!block_ || kind_ != k.kind) {
      block_.reset();
      block_ = std::make_unique<MeasuredBlock<P>>(b_, k.kind, handle);
      kind_ = k.kind;
    }
    block_->measure(b_, k, kernel);
  }

  /// The sum of two gradients, which belongs to no operation.
  void measure_sum(const BenchKernel& kernel) {
    const BenchArray<T> x(b_.exec(), kernel.rows, kernel.columns);
    const BenchArray<T> sum(b_.exec(), kernel.rows, kernel.columns);
    b_.measure(kernel, [&] { kernels::accumulate<T>(b_.exec(), sum, x); });
  }

  /// Measures attention with every other available back end as a row with 0 calls, unless the
  /// deck's back ends are portable.
  void measure_beside(const plan::BlockKernel& k, BenchKernel kernel) {
    using kernels::AttentionBackend;
    constexpr DType type = dtype_of<T>;
    const kernels::AttentionBackends chosen = b_.handle().choice().attention(type);
    if (chosen == kernels::AttentionBackends{}) return;
    kernel.calls = 0;
    for (const auto& [name, backend] : {std::pair{"attention_portable", AttentionBackend::portable},
                                        {"attention_tensor_cores", AttentionBackend::tensor_cores},
                                        {"attention_cudnn", AttentionBackend::cudnn}}) {
      if (!kernels::attention_backend_available(type, backend)) continue;
      if (chosen == kernels::AttentionBackends{backend, backend}) continue;
      kernels::KernelChoice choice = b_.handle().choice();
      kernel.name = name + k.name.substr(k.name.find('.'));
      measure(k, kernel, kernels::Handle(choice.set_attention(type, {backend, backend})));
    }
  }

  KernelBench& b_;
  std::unique_ptr<MeasuredBlock<P>> block_;
  std::size_t kind_ = 0;
};

}  // namespace

template <class P>
void measure_block_kernels(KernelBench& b) {
  BlockKernels<P> kernels(b);
  const BenchShard& shard = b.shard();
  for (const plan::BlockKernel& k : shard.kernels) kernels.measure(k, shard.layers > 0);
  for (const plan::BlockKernel& k : shard.end_kernels)
    kernels.measure(k,
                    k.kind > 0 ? shard.has_head : shard.has_embedding && b.sizes().vocabulary > 0);
}

template void measure_block_kernels<model::Fp32>(KernelBench&);
template void measure_block_kernels<model::Fp64>(KernelBench&);
template void measure_block_kernels<model::MixedBf16>(KernelBench&);
template void measure_block_kernels<model::MixedFp16>(KernelBench&);

}  // namespace trireme::commands
