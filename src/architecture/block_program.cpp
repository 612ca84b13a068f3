// Lowering of a layer: assigns memory to every value of its calls from its first to its last use.
#include <trireme/architecture/block_program.hpp>
#include <trireme/architecture/operation_calls.hpp>
#include <trireme/base/check.hpp>

#include <algorithm>
#include <functional>
#include <optional>

namespace trireme::architecture {
namespace {

/// The tensor whose memory holds `tensor`.
int root_of(const BlockDescription& layer, int tensor) {
  while (layer.tensors[at(tensor)].stored_in >= 0) tensor = layer.tensors[at(tensor)].stored_in;
  return tensor;
}

/// For each tensor, whether a backward pass reads it; with `only`, whether this pass reads it.
std::vector<bool> read_backward(const BlockDescription& layer, std::optional<Pass> only = {}) {
  std::vector<bool> read(layer.tensors.size(), false);
  for (const Operation& op : layer.operations)
    for (const Pass pass : {Pass::backward_input, Pass::backward_weight})
      if (has_pass(op, pass) && (!only || *only == pass))
        for (const int t : tensors_read(op, pass)) read[at(t)] = true;
  return read;
}

/// The operation that writes `tensor` first.
const Operation& producer(const BlockDescription& layer, int tensor) {
  return *std::ranges::find_if(layer.operations, [&](const Operation& op) {
    return std::ranges::count(tensors_written(op), tensor) > 0;
  });
}

/// A value of one phase that needs memory of its own, from the call that writes it to its last use.
struct Interval {
  Value value;
  Bytes bytes = 0;
  int first = 0;  ///< call that writes it
  int last = 0;   ///< last call that uses it
  Bytes offset = 0;
  int replaces = -1;  ///< index of an interval whose memory it overwrites, row by row
  /// If the value is a contribution to a sum: number of the call that adds it; otherwise −1.
  int contribution_of = -1;
};

/// Assigns offsets to the intervals and returns the bytes that they need. The largest interval is
/// placed first; each interval gets the lowest offset that is free during its lifetime (greedy by
/// size; Pisarchyk and Lee 2020, arXiv 2001.03288).
Bytes place(std::vector<Interval>& intervals) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < intervals.size(); ++i)
    if (intervals[i].replaces < 0) order.push_back(i);
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t i) { return intervals[i].bytes; });
  std::vector<std::size_t> placed;
  Bytes end = 0;
  for (const std::size_t i : order) {
    Interval& mine = intervals[i];
    std::ranges::sort(placed, {}, [&](std::size_t j) { return intervals[j].offset; });
    for (const std::size_t j : placed) {
      const Interval& other = intervals[j];
      if (other.last < mine.first || mine.last < other.first) continue;
      if (mine.offset + mine.bytes <= other.offset) break;
      mine.offset = std::max(mine.offset, other.offset + other.bytes);
    }
    placed.push_back(i);
    end = std::max(end, mine.offset + mine.bytes);
  }
  for (Interval& interval : intervals)
    if (interval.replaces >= 0) interval.offset = intervals[at(interval.replaces)].offset;
  return end;
}

class Lowering {
 public:
  Lowering(const BlockDescription& layer, const RankSizes& sizes, const LoweringOptions& options)
      : layer_(layer), sizes_(sizes.of(layer.stream)), options_(options) {}

  BlockProgram run() {
    program_.kept = options_.kept;
    program_.split_backward = options_.training && options_.split_backward;
    for (std::size_t t = 0; t < layer_.tensors.size(); ++t) {
      kept_places_.push_back({});
      const Home home = layer_.tensors[t].home;
      if (home == Home::batch) kept_places_.back() = {Place::Memory::batch, 0};
      if (home == Home::value) kept_places_.back() = value_place(static_cast<int>(t));
      if (!options_.kept[t] || home == Home::batch || home == Home::value) continue;
      kept_places_.back() = {Place::Memory::kept, program_.kept_bytes};
      program_.kept_bytes += bytes(layer_.tensors[t]);
    }
    program_.forward = assign(forward_calls(layer_), true);
    if (options_.training) lower_backward();
    for (const PhaseProgram* phase : {&program_.forward, &program_.backward,
                                      &program_.backward_input, &program_.backward_weight})
      program_.transient_bytes = std::max(program_.transient_bytes, phase->transient_bytes);
    return std::move(program_);
  }

 private:
  void lower_backward() {
    const BackwardCalls backward = backward_calls(layer_);
    const auto lowered = [&](const std::vector<OperationCall>& calls) {
      return assign(with_recomputation(layer_, options_.kept, calls), false);
    };
    check_stream(backward.input);
    if (!program_.split_backward) {
      program_.backward = lowered(backward.both);
      return;
    }
    place_work(backward.weight);
    program_.backward_input = lowered(backward.input);
    program_.backward_weight = lowered(backward.weight);
  }

  /// Places gradients that backward_input stores for backward_weight.
  void place_work(const std::vector<OperationCall>& weight) {
    work_places_.assign(layer_.tensors.size(), {});
    for (const OperationCall& call : weight)
      for (const Value& value : effects(layer_, call).reads)
        if (value.gradient && work_places_[at(value.tensor)].memory == Place::Memory::none) {
          work_places_[at(value.tensor)] = {Place::Memory::work, program_.work_bytes};
          program_.work_bytes += bytes(gradient_of(layer_, value.tensor));
        }
  }

  Bytes bytes(const Tensor& t) const {
    return bytes_of(t, sizes_, options_.element, options_.accumulate);
  }

  /// Memory of a value that is not transient; `none` for a transient value.
  Place fixed_place(const Value& value, bool forward) const {
    if (!value.gradient) {
      const int root = root_of(layer_, value.tensor);
      // A last norm that is repeated in the backward pass writes it to transient memory.
      if (root == layer_.output && forward) return {Place::Memory::output, 0};
      return kept_places_[at(root)];
    }
    if (layer_.tensors[at(value.tensor)].home == Home::value) return value_place(value.tensor);
    if (on_stream(value.tensor)) return {Place::Memory::stream, 0};
    return work_places_.empty() ? Place{} : work_places_[at(value.tensor)];
  }

  Place value_place(int tensor) const {
    return {Place::Memory::value,
            value_offset(layer_.tensors[at(tensor)].value, sizes_, options_.element,
                         options_.accumulate, layer_.tensors[at(tensor)].module)};
  }

  /// Whether the tensor's gradient is stored in the gradient of the residual stream: true for the
  /// layer's input and output, and for the outputs of residual additions, except before a last
  /// norm, which needs the gradient of its output longer.
  bool on_stream(int tensor) const {
    const Operation& last = layer_.operations.back();
    if (last.kind == OperationKind::norm && last.input() == tensor) return false;
    return tensor == 0 || tensor == layer_.output ||
           std::ranges::any_of(layer_.operations, [&](const Operation& op) {
             return op.kind == OperationKind::residual && op.output == tensor;
           });
  }

  /// Error if a call reads a gradient of the stream that an earlier call has overwritten.
  void check_stream(const std::vector<OperationCall>& calls) const {
    std::vector<int> held{layer_.output};  // tensors whose gradient the stream's memory contains
    for (const OperationCall& call : calls) {
      if (call.pass != Pass::backward_input) continue;
      const Operation& op = layer_.operations[at(call.operation)];
      for (const int t : {op.output, call.sum})
        check(t < 0 || !on_stream(t) || std::ranges::count(held, t) > 0, "layer program: ", op.name,
              " reads the gradient of ", layer_.tensors[at(t)].name,
              ", which another gradient of the residual stream has overwritten");
      if (op.kind == OperationKind::residual) held.push_back(op.inputs[1]);
      if (const int target = gradient_target(layer_, call); on_stream(target)) held = {target};
    }
  }

  PhaseProgram assign(std::vector<OperationCall> calls, bool forward) const {
    PhaseProgram phase;
    phase.calls = std::move(calls);
    phase.tensors.resize(layer_.tensors.size());
    phase.gradients.resize(layer_.tensors.size());
    std::vector<Interval> intervals = lifetimes(phase, forward);
    phase.transient_bytes = place(intervals);
    for (const Interval& i : intervals) {
      Place& place = i.contribution_of >= 0 ? phase.calls[at(i.contribution_of)].contribution
                                            : places(phase, i.value)[at(i.value.tensor)];
      place = {Place::Memory::transient, i.offset};
    }
    for (std::size_t t = 0; t < layer_.tensors.size(); ++t)  // tensors that share memory
      phase.tensors[t] = phase.tensors[at(root_of(layer_, static_cast<int>(t)))];
    return phase;
  }

  static std::vector<Place>& places(PhaseProgram& phase, const Value& value) {
    return value.gradient ? phase.gradients : phase.tensors;
  }

  /// Sets the places of the values that are not transient. Returns the transient values.
  std::vector<Interval> lifetimes(PhaseProgram& phase, bool forward) const {
    std::vector<Interval> intervals;
    for (std::size_t s = 0; s < phase.calls.size(); ++s) {
      const CallEffects e = effects(layer_, phase.calls[s]);
      const auto use = [&](Value value, bool writes) {
        if (!value.gradient) value.tensor = root_of(layer_, value.tensor);
        Place& place = places(phase, value)[at(value.tensor)];
        place = fixed_place(value, forward);
        if (place.memory != Place::Memory::none) return;
        const auto found = std::ranges::find(intervals, value, &Interval::value);
        if (found != intervals.end()) {
          found->last = static_cast<int>(s);
          return;
        }
        check(writes, "layer program: call ", s, " reads a value that no call wrote");
        const Tensor tensor =
            value.gradient ? gradient_of(layer_, value.tensor) : layer_.tensors[at(value.tensor)];
        const auto number = static_cast<int>(s);
        intervals.push_back({value, bytes(tensor), number, number});
      };
      for (const Value& value : e.reads) use(value, false);
      for (const Value& value : e.writes) use(value, true);
      for (const int tensor : e.scratch) use({tensor}, true);
      if (needs_contribution(phase.calls[s])) {
        const int target = gradient_target(layer_, phase.calls[s]);
        const auto number = static_cast<int>(s);
        intervals.push_back({{-1, true}, bytes(gradient_of(layer_, target)), number, number});
        intervals.back().contribution_of = number;
      }
    }
    replace_dead_rows(phase, intervals);
    return intervals;
  }

  /// Whether a call that adds to a sum needs memory for its contribution: the sum is in the memory
  /// of the input's gradient, and the operation cannot add to it.
  bool needs_contribution(const OperationCall& call) const {
    if (!call.accumulates() || rule_of(layer_.operations[at(call.operation)].kind).adds_gradient)
      return false;
    const int target = gradient_target(layer_, call);
    return call.sum == target || (on_stream(call.sum) && on_stream(target));
  }

  /// A kernel that fuses an addition and a norm may overwrite a row of its input with the norm: a
  /// post-norm layer's y2 then replaces y1.
  void replace_dead_rows(const PhaseProgram& phase, std::vector<Interval>& intervals) const {
    for (std::size_t s = 0; s < phase.calls.size(); ++s) {
      const OperationCall& call = phase.calls[s];
      if (call.fused < 0 || call.pass != Pass::forward) continue;
      const Operation& addition = layer_.operations[at(call.operation)];
      if (addition.kind != OperationKind::residual) continue;
      const Value added{addition.inputs[1]};
      const Value normed{layer_.operations[at(call.fused)].output};
      const auto dead = std::ranges::find(intervals, added, &Interval::value);
      const auto born = std::ranges::find(intervals, normed, &Interval::value);
      const auto now = static_cast<int>(s);
      if (dead == intervals.end() || born == intervals.end()) continue;
      if (dead->last != now || born->first != now || dead->bytes != born->bytes) continue;
      born->replaces = static_cast<int>(dead - intervals.begin());
      dead->last = born->last;
    }
  }

  const BlockDescription& layer_;
  const RankSizes sizes_;
  const LoweringOptions& options_;
  BlockProgram program_;
  std::vector<Place> kept_places_;
  std::vector<Place> work_places_;
};

}  // namespace

Tensor gradient_of(const BlockDescription& layer, int tensor) {
  Tensor gradient = layer.tensors[at(tensor)];
  const auto own = std::ranges::find(layer.tensors, "d" + gradient.name, &Tensor::name);
  if (own != layer.tensors.end()) return *own;
  if (gradient.home != Home::layer) return gradient;
  const bool partial = std::ranges::any_of(layer.operations, [&](const Operation& op) {
    return is_product(op) && op.cut == Cut::inputs && op.output == tensor;
  });
  if (partial)
    gradient.rows = gradient.rows == Rows::source_own ? Rows::source_tokens : Rows::tokens;
  return gradient;
}

bool is_always_kept(const BlockDescription& layer, int tensor) {
  return layer.tensors[at(tensor)].home == Home::value ||
         std::ranges::any_of(layer.operations, [&](const Operation& op) {
           return rule_of(op.kind).once && op.output == tensor;
         });
}

Kept kept_tensors(const BlockDescription& layer, Recompute recompute) {
  Kept kept = read_backward(layer);
  kept[0] = true;
  for (std::size_t t = 1; t < kept.size(); ++t)
    if (is_always_kept(layer, static_cast<int>(t))) kept[t] = true;
  check(recompute != Recompute::automatic, "the choice of recompute = \"auto\" is not made yet");
  if (recompute == Recompute::none) return kept;
  if (recompute == Recompute::full) {
    kept = kept_for_evaluation(layer);
    for (std::size_t t = 1; t < kept.size(); ++t)
      if (is_always_kept(layer, static_cast<int>(t))) kept[t] = true;
    return kept;
  }
  const std::vector<bool> read_early = read_backward(layer, Pass::backward_input);
  for (std::size_t t = 1; t < kept.size(); ++t) {
    if (read_early[t] || !kept[t] || is_always_kept(layer, static_cast<int>(t))) continue;
    if (rule_of(producer(layer, static_cast<int>(t)).kind).cheap) kept[t] = false;
  }
  return kept;
}

Kept kept_for_evaluation(const BlockDescription& layer) {
  Kept kept;
  for (const Tensor& t : layer.tensors)
    kept.push_back(t.home == Home::batch || t.home == Home::value);
  kept[0] = true;
  return kept;
}

bool reads_weights(const PhaseProgram& phase) {
  return std::ranges::any_of(
      phase.calls, [](const OperationCall& call) { return call.pass != Pass::backward_weight; });
}

const PhaseProgram& BlockProgram::phase(Phase phase) const {
  switch (phase) {
    case Phase::forward:
      return forward;
    case Phase::backward:
      return backward;
    case Phase::backward_input:
      return backward_input;
    case Phase::backward_weight:
      return backward_weight;
  }
  return forward;
}

BlockProgram lower(const BlockDescription& layer, const RankSizes& sizes,
                   const LoweringOptions& options) {
  check(options.kept.size() == layer.tensors.size() && options.kept[0],
        "layer program: the layer's input is not kept");
  return Lowering(layer, sizes, options).run();
}

double products_again(const BlockDescription& layer, const PhaseProgram& phase,
                      const deck::ModelConfig& model) {
  double products = 0;
  for (const OperationCall& call : phase.calls)
    if (call.again) {
      const Operation& op = layer.operations[at(call.operation)];
      products += product_factor(op, Pass::forward) * products_per_token(layer, op, model);
    }
  return products;
}

}  // namespace trireme::architecture
