// The time of a step: passes of each stage, messages between stages, and what follows the last
// pass.
#include <trireme/architecture/shard.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/plan/step_time.hpp>
#include <trireme/schedule/machine.hpp>

#include <algorithm>
#include <numeric>

namespace trireme::plan {
namespace {

using architecture::Architecture;
using architecture::Collective;

constexpr std::array<std::string_view, causes> cause_names{
    "compute", "tensor", "pipeline", "data", "bubble", "optimizer", "host"};

std::int64_t micro_batches_of(const deck::Config& c) {
  return c.batch.global / (c.batch.micro * c.parallel.data);
}

/// Bytes that the update of a parameter moves: the state and the weights are read and written, and
/// the gradient is read, also for its norm. Weights with fewer bits have a master copy.
double update_bytes(const deck::Config& config, const LocalSizes& sizes, const Machine& machine) {
  if (machine.software.optimizer_bytes > 0) return machine.software.optimizer_bytes;
  const auto states =
      static_cast<std::int64_t>(architecture::state_arrays(config.optimizer).size());
  return static_cast<double>(2 * (states + 1) * sizes.accumulate + 2 * sizes.accumulate +
                             (sizes.narrow() ? sizes.element : 0));
}

/// Parameters of a tensor rank by stage. The table of tied embeddings counts in the first stage and
/// in the last.
std::vector<double> stage_parameters(const Architecture& a,
                                     const std::vector<layout::Slice>& stage_layers,
                                     std::int64_t tensor) {
  double layer = 0, embedding = 0, head = 0;
  const std::int64_t groups = a.model.shared_layers > 0 ? a.model.shared_layers : a.model.layers;
  for (const architecture::ArraySpec& array : a.arrays) {
    const double elements = static_cast<double>(array.elements()) /
                            static_cast<double>(array.split_axis >= 0 ? tensor : 1);
    if (array.layer < 0)
      embedding += elements;
    else if (array.layer < a.model.layers)
      layer += elements / static_cast<double>(groups);
    else
      head += elements;
  }
  const double table = a.model.tied_embeddings
                           ? static_cast<double>(a.model.vocabulary) *
                                 static_cast<double>(a.model.hidden) / static_cast<double>(tensor)
                           : 0;
  std::vector<double> all;
  for (const layout::Slice& layers : stage_layers)
    all.push_back(layer * static_cast<double>(layers.extent));
  all.front() += embedding;
  all.back() += head + (all.size() > 1 ? table : 0);
  return all;
}

/// How many ranks take turns on each processor of a node: of those that compute at the same time
/// because their stage does, and of all.
struct Turns {
  double of_stage = 1;
  double of_all = 1;
};
Turns turns_of(const deck::ParallelConfig& p, const Machine& machine) {
  const std::int64_t ranks = p.tensor * p.pipeline * p.data;
  const std::int64_t on_node =
      machine.node.devices == 0 ? ranks : std::min(ranks, machine.node.devices);
  if (machine.node.processors == 0 || on_node <= machine.node.processors) return {};
  const auto processors = static_cast<double>(machine.node.processors);
  const std::int64_t at_once = std::min(on_node, p.tensor * p.data);
  return {std::max(1.0, static_cast<double>(at_once) / processors),
          static_cast<double>(on_node) / processors};
}

/// Messages are measured while all ranks send, and take no longer.
void take_turns(PartTime& stage, double turns) {
  for (PassTime* pass :
       {&stage.forward, &stage.backward, &stage.backward_input, &stage.backward_weight}) {
    pass->compute *= turns;
    pass->host *= turns;
  }
}

/// Sums over the chunks of each pipeline rank.
struct RankWork {
  PassTime passes;  ///< forward and backward of a micro-batch, all chunks
  Seconds forward = 0;
  Seconds input = 0;
  Seconds weight = 0;
  Seconds messages = 0;  ///< sent per micro-batch
};

std::vector<RankWork> work_of_ranks(const deck::ParallelConfig& p, const StepCosts& costs) {
  const bool split = p.schedule == ScheduleKind::zb_h1;
  std::vector<RankWork> ranks(static_cast<std::size_t>(p.pipeline));
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    RankWork& rank = ranks[s % ranks.size()];
    const PartTime& stage = costs.stages[s];
    rank.passes += stage.forward;
    rank.forward += stage.forward.total();
    if (split) {
      rank.passes += stage.backward_input;
      rank.passes += stage.backward_weight;
      rank.input += stage.backward_input.total();
      rank.weight += stage.backward_weight.total();
    } else {
      rank.passes += stage.backward;
    }
    rank.messages += costs.activations[s] + costs.gradients[s];
  }
  return ranks;
}

/// The passes of a micro-batch on the average rank, where ranks of all stages share processors.
Seconds crowded_seconds(const std::vector<RankWork>& ranks, const StepCosts& costs) {
  Seconds sum = 0;
  for (const RankWork& rank : ranks)
    sum += (rank.passes.compute + rank.passes.host) * costs.crowding + rank.passes.tensor;
  return sum / static_cast<double>(ranks.size());
}

/// What follows the last pass, on the rank that takes the longest.
Seconds tail_seconds(const StepCosts& costs) {
  Seconds longest = 0;
  const std::size_t ranks = costs.updates.size();
  for (std::size_t r = 0; r < ranks; ++r) {
    Seconds tail = costs.updates[r];
    for (std::size_t s = r; s < costs.stages.size(); s += ranks) tail += costs.reductions[s];
    if (r == 0 || r + 1 == ranks) tail += costs.tied;
    longest = std::max(longest, tail);
  }
  return longest + costs.norm;
}

schedule::Cost cost_of(const StepCosts& costs) {
  return [&costs](const schedule::Instr& i) -> Seconds {
    using schedule::Op;
    const auto s = static_cast<std::size_t>(i.stage);
    switch (i.op) {
      case Op::forward:
      case Op::evaluate:
        return costs.stages[s].forward.total();
      case Op::backward:
        return costs.stages[s].backward.total();
      case Op::backward_input:
        return costs.stages[s].backward_input.total();
      case Op::backward_weight:
        return costs.stages[s].backward_weight.total();
      case Op::send_activation:
        return costs.waiting * costs.activations[s];
      case Op::send_gradient:
        return costs.waiting * costs.gradients[s];
      case Op::receive_activation:
        return costs.activations[s - 1];
      case Op::receive_gradient:
        return costs.gradients[s + 1];
      case Op::reduce_gradients:
        return costs.reductions[s];
      case Op::reduce_tied:
        return costs.tied;
      case Op::gradient_norm:
        return costs.norm;
      case Op::optimizer_step:
        return costs.updates[s];
    }
    return 0;
  };
}

}  // namespace

std::string_view name_of(Cause cause) {
  return cause_names[static_cast<std::size_t>(cause)];
}

PartTimes part_times(const deck::Config& config, const Architecture& a, bool split_backward,
                     const Machine& machine) {
  const auto shard =
      architecture::make_shard(a, 1, 1, 0, static_cast<int>(config.parallel.tensor), 0);
  const KernelTime kernels(machine, config.precision);
  const NetworkTime network(machine, config.parallel);
  const LayerTime time(a, local_sizes(config, shard, machine), kernels, network, machine);
  return {time.layer(layer_program(config, a, shard, split_backward, machine)), time.embedding(),
          time.head()};
}

StepCosts step_costs(const deck::Config& config, const Architecture& a, const PartTimes& parts,
                     const Machine& machine) {
  const deck::ParallelConfig& p = config.parallel;
  const Machine::Software& software = machine.software;
  const auto stage_layers = architecture::partition(a, static_cast<int>(p.pipeline * p.chunks));
  const std::size_t stages = stage_layers.size();
  const auto ranks = static_cast<std::size_t>(p.pipeline);
  const NetworkTime network(machine, p);
  const auto shard = architecture::make_shard(a, 1, 1, 0, static_cast<int>(p.tensor), 0);
  const LocalSizes sizes = local_sizes(config, shard, machine);
  StepCosts costs;
  const Turns shared = turns_of(p, machine);
  const double turns = shared.of_stage;
  costs.crowding = shared.of_all / turns;
  costs.waiting = 1 - software.pipeline_overlap;

  const auto whole = static_cast<double>(sizes.tokens * sizes.hidden * sizes.element);
  const bool cut = software.scatter_gather || sizes.cuts_tokens;
  const double sent = cut ? whole / static_cast<double>(p.tensor) : whole;
  PassTime gather;
  if (cut && !sizes.cuts_tokens)
    gather.tensor = network.collective(Collective::all_gather, whole, Axis::tensor);
  for (std::size_t s = 0; s < stages; ++s) {
    PartTime stage = parts.layer * static_cast<double>(stage_layers[s].extent);
    if (s == 0) stage += parts.embedding;
    if (s + 1 == stages) stage += parts.head;
    if (s > 0) stage.forward += gather;
    if (s + 1 < stages) {
      stage.backward += gather;
      stage.backward_input += gather;
    }
    take_turns(stage, turns);
    costs.stages.push_back(stage);
    const int rank = static_cast<int>(s % ranks);
    const int before = static_cast<int>((s + ranks - 1) % ranks);
    costs.activations.push_back(s + 1 == stages ? 0 : network.to_next(sent, rank));
    costs.gradients.push_back(s == 0 ? 0 : network.to_next(sent, before));
  }

  const std::vector<double> parameters = stage_parameters(a, stage_layers, p.tensor);
  const double gradient = software.gradient_bytes > 0 ? static_cast<double>(software.gradient_bytes)
                                                      : static_cast<double>(sizes.accumulate);
  const double shown = 1 - software.gradient_overlap;
  costs.updates.assign(ranks, 0);
  const KernelTime kernels(machine, config.precision);
  const bool shares = p.distributed_optimizer && p.data > 1;
  for (std::size_t s = 0; s < stages; ++s) {
    const double bytes = parameters[s] * gradient;
    costs.reductions.push_back(
        shown * network.collective(shares ? Collective::reduce_scatter : Collective::all_reduce,
                                   bytes, Axis::data));
    const double updated = parameters[s] / static_cast<double>(shares ? p.data : 1);
    Seconds& update = costs.updates[s % ranks];
    update += turns * kernels.memory(updated * update_bytes(config, sizes, machine),
                                     machine.kernels.update);
    if (shares)
      update += network.collective(Collective::all_gather,
                                   parameters[s] * static_cast<double>(sizes.element), Axis::data);
  }
  if (a.model.tied_embeddings && p.pipeline > 1)
    costs.tied = network.first_and_last(static_cast<double>(a.model.vocabulary * a.model.hidden) /
                                        static_cast<double>(p.tensor) * gradient);
  costs.norm = network.collective(Collective::all_reduce, 8, Axis::tensor) +
               network.collective(Collective::all_reduce, 8, Axis::pipeline);
  return costs;
}

Seconds estimated_seconds(const deck::Config& config, const StepCosts& costs) {
  const deck::ParallelConfig& p = config.parallel;
  const auto m = static_cast<double>(micro_batches_of(config));
  const std::vector<RankWork> ranks = work_of_ranks(p, costs);
  Seconds longest = 0, sum = 0, bubble = 0, message = 0;
  for (const RankWork& rank : ranks) {
    const Seconds passes = rank.passes.total();
    longest = std::max(longest, passes + 2 * costs.waiting * rank.messages);
    sum += passes;
    message = std::max(message, rank.messages);
    bubble += std::max(0.0, rank.forward + rank.input - rank.weight);
  }
  const auto chunks = static_cast<double>(p.chunks);
  const auto others = static_cast<double>(p.pipeline - 1);
  const Seconds wait = p.schedule == ScheduleKind::zb_h1
                           ? bubble * others / static_cast<double>(p.pipeline)
                           : (sum - longest) / chunks;
  const Seconds passes = m * longest + std::max(0.0, wait) + others * message / chunks;
  return std::max(passes, m * crowded_seconds(ranks, costs)) + tail_seconds(costs);
}

StepTime played_time(const deck::Config& config, const Architecture& a, const StepCosts& costs,
                     const schedule::Program& program) {
  const deck::ParallelConfig& p = config.parallel;
  const auto m = static_cast<double>(micro_batches_of(config));
  const schedule::Played played = schedule::play(program, cost_of(costs));
  StepTime time;
  time.idle_share = played.timeline.idle_share();
  for (const schedule::Event& e : played.timeline.events)
    time.seconds = std::max(time.seconds, e.end);
  const std::vector<RankWork> ranks = work_of_ranks(p, costs);
  time.seconds = std::max(time.seconds, m * crowded_seconds(ranks, costs) + tail_seconds(costs));

  const auto busiest = static_cast<std::size_t>(
      std::ranges::max_element(ranks, {}, [](const RankWork& r) { return r.passes.total(); }) -
      ranks.begin());
  const RankWork& rank = ranks[busiest];
  time.of(Cause::compute) = m * rank.passes.compute;
  time.of(Cause::tensor) = m * rank.passes.tensor;
  time.of(Cause::host) = m * rank.passes.host;
  time.of(Cause::pipeline) = m * rank.messages * costs.waiting;
  for (std::size_t s = busiest; s < costs.stages.size(); s += ranks.size())
    time.of(Cause::data) += costs.reductions[s];
  if (busiest == 0 || busiest + 1 == ranks.size()) time.of(Cause::data) += costs.tied;
  time.of(Cause::optimizer) = costs.norm + costs.updates[busiest];
  time.of(Cause::bubble) =
      time.seconds - std::accumulate(time.shares.begin(), time.shares.end(), 0.0);

  const double tokens = static_cast<double>(config.batch.global * config.model.sequence);
  time.model_flops = a.model_flops_per_token() * tokens;
  const auto kept = kept_tensors(p, a.layer);
  time.hardware_flops = time.model_flops;
  const auto stage_layers = architecture::partition(a, 1);
  const StageFlops flops = stage_flops(a, stage_layers, kept).front();
  const bool split = p.schedule == ScheduleKind::zb_h1;
  time.hardware_flops += tokens * (split ? flops.again_input + flops.again_weight : flops.again);
  return time;
}

StepTime predict_step(const deck::Config& config, const Architecture& a,
                      const schedule::Program& program, const Machine& machine) {
  const bool split = std::ranges::any_of(program.ranks.front(), [](const schedule::Instr& i) {
    return i.op == schedule::Op::backward_weight;
  });
  return played_time(
      config, a, step_costs(config, a, part_times(config, a, split, machine), machine), program);
}

}  // namespace trireme::plan
