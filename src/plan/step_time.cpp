// Time of a step from the costs of its instructions, by simulation of few micro-batches or of the
// whole program.
#include <trireme/plan/step_time.hpp>

#include <trireme/architecture/shard.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/overlap.hpp>

#include <algorithm>
#include <numeric>

namespace trireme::plan {
namespace {

using architecture::Architecture;

constexpr auto cause_names =
    words_of<Cause>("compute", "tensor", "pipeline", "data", "bubble", "optimizer", "host");

/// Sums over the chunks of a pipeline rank.
struct RankWork {
  PassTime passes;       ///< forward and backward of a micro-batch, all chunks
  Seconds forward = 0;   ///< with messages that the rank waits for
  Seconds backward = 0;  ///< with messages that the rank waits for
  Seconds weight = 0;    ///< movable half of the backward pass; part of `backward`
  Seconds messages = 0;  ///< messages sent per micro-batch
  Seconds reductions = 0;

  Seconds all() const { return forward + backward; }
};

std::vector<RankWork> work_of_ranks(const deck::ParallelConfig& p, bool split,
                                    const StepCosts& costs) {
  const layout::StageMap map = p.stage_map();
  std::vector<RankWork> ranks(static_cast<std::size_t>(p.pipeline));
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    RankWork& rank = ranks[static_cast<std::size_t>(map.rank_of(static_cast<Stage>(s)))];
    const BlockTime& stage = costs.stages[s];
    PassTime backward = stage.backward;
    if (split) {
      backward = stage.backward_input;
      backward += stage.backward_weight;
      rank.weight += stage.backward_weight.total();
    }
    rank.passes += stage.forward;
    rank.passes += backward;
    rank.forward += stage.forward.total() + costs.waiting * costs.activations[s];
    rank.backward += backward.total() + costs.waiting * costs.gradients[s];
    rank.messages += costs.activations[s] + costs.gradients[s];
    rank.reductions += costs.reductions[s];
  }
  for (RankWork& rank : ranks) {
    rank.passes += costs.logits;
    rank.passes += costs.logits_gradient;
    rank.forward += costs.logits.total();
    rank.backward += costs.logits_gradient.total();
  }
  return ranks;
}

/// Lower bound of the time of all passes: the mean work of a rank while all processors are busy.
Seconds shared_work(const std::vector<RankWork>& ranks, double micro_batches,
                    const StepCosts& costs) {
  Seconds all = 0;
  for (const RankWork& rank : ranks)
    all += (rank.passes.compute + rank.passes.host) * costs.crowding + rank.passes.tensor +
           rank.passes.data;
  return micro_batches * all / static_cast<double>(ranks.size());
}

/// Time from the first rank's last pass to the end of the step. Without split backward passes,
/// later ranks end their passes earlier, and begin their sums of gradients while the first rank
/// still computes.
Seconds tail_seconds(const deck::ParallelConfig& p, bool split, const std::vector<RankWork>& ranks,
                     const StepCosts& costs) {
  Seconds early = 0, sums = 0, update = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    // The first and the last rank wait for each other.
    const bool both = r == 0 || r + 1 == ranks.size();
    sums = std::max(sums, ranks[r].reductions - early + (both ? costs.tied : 0));
    update = std::max(update, costs.updates[r] + costs.gathers[r]);
    if (!split) early += ranks[r].backward / static_cast<double>(p.chunks);
  }
  return sums + costs.norm + update;
}

/// End of a step, given the end of the passes of each rank: sums of gradients, norm and update.
Seconds with_update(std::vector<Seconds> ends, const layout::StageMap& map,
                    const std::vector<RankWork>& ranks, const StepCosts& costs) {
  for (std::size_t r = 0; r < ends.size(); ++r) ends[r] += ranks[r].reductions;
  Seconds& first = ends[static_cast<std::size_t>(map.rank_of(0))];
  Seconds& last = ends[static_cast<std::size_t>(map.rank_of(map.last_stage()))];
  first = last = std::max(first, last) + costs.tied;
  Seconds update = 0;
  for (std::size_t r = 0; r < ends.size(); ++r)
    update = std::max(update, costs.updates[r] + costs.gathers[r]);
  return std::ranges::max(ends) + costs.norm + update;
}

Seconds seconds_of(const StepCosts& costs, const schedule::Instr& i) {
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
    case Op::logits:
      return costs.logits.total();
    case Op::evaluate_logits:
      return costs.logits.total() / 2;
    case Op::logits_gradient:
      return costs.logits_gradient.total();
    case Op::look_up:
    case Op::combine_logits:
    case Op::look_up_gradient:
      return 0;
    case Op::share_output:
    case Op::share_gradient:
      return costs.shared;
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
      return costs.updates[s] + costs.gathers[s];
    case Op::begin_tied:
    case Op::begin_norm:
      break;
  }
  return 0;
}

bool splits_backward(const schedule::Program& program) {
  return std::ranges::any_of(program.ranks.front(), [](const schedule::Instr& i) {
    return i.op == schedule::Op::backward_weight;
  });
}

}  // namespace

schedule::Cost cost_of(StepCosts costs) {
  return [costs = std::move(costs)](const schedule::Instr& i) { return seconds_of(costs, i); };
}

std::string_view name_of(Cause cause) {
  return cause_names[static_cast<std::size_t>(cause)];
}

Seconds least_seconds(const deck::Config& config, const StepCosts& costs) {
  const deck::ParallelConfig& p = config.parallel;
  const auto m = static_cast<double>(config.micro_batches());
  const std::vector<RankWork> ranks = work_of_ranks(p, p.splits_backward(), costs);
  const Seconds shared =
      shared_work(ranks, m, costs) + tail_seconds(p, p.splits_backward(), ranks, costs);
  const layout::StageMap map = p.stage_map();
  std::vector<Seconds> ends(ranks.size());
  const Seconds weight =
      p.splits_backward() ? costs.stages.front().backward_weight.total() : Seconds{0};
  Seconds there = 0, back = 0;  // of one micro-batch, between the first stages of ranks 0 and r
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (p.overlaps_steps()) there = back = 0;
    const RankWork& rank = ranks[r];
    ends[r] = std::max(ends[r], there + m * rank.all());
    // The rank's last gradient leaves before the start of its send has ended.
    const Seconds work = m * (rank.all() - rank.weight) - costs.waiting * costs.gradients[r];
    ends[0] = std::max(ends[0], there + work + back + weight);
    const BlockTime& stage = costs.stages[r];
    const PassTime& backward = p.splits_backward() ? stage.backward_input : stage.backward;
    there += stage.forward.total() + costs.activations[r];
    if (r + 1 < ranks.size()) back += backward.total() + costs.gradients[r + 1];
  }
  return std::max(shared, with_update(std::move(ends), map, ranks, costs));
}

Seconds StepEstimate::seconds(const deck::Config& config, const StepCosts& costs) {
  const deck::ParallelConfig& p = config.parallel;
  const Seconds least = least_seconds(config, costs);
  const schedule::ProgramLayout layout = passes_of(p, config.micro_batches());
  const auto kind = estimated_schedule(p.schedule, layout);
  if (!kind) return least;
  const auto [found, is_new] = known_.try_emplace(
      {*kind, layout.ranks, layout.micro_batches, layout.chunks, layout.placement}, *kind, layout);
  // Passes of a shared vocabulary, on each rank once for all chunks.
  const auto chunks = static_cast<double>(p.chunks);
  const Seconds forward = costs.logits.total() / chunks;
  const Seconds backward = costs.logits_gradient.total() / chunks;
  const std::vector<Seconds> ends = found->second.ends([&](const schedule::Instr& i) {
    using schedule::Op;
    const bool adds_gradient = i.op == Op::backward || i.op == Op::backward_weight;
    return seconds_of(costs, i) + (i.op == Op::forward ? forward : adds_gradient ? backward : 0);
  });
  return std::max(
      least, with_update(ends, p.stage_map(), work_of_ranks(p, p.splits_backward(), costs), costs));
}

Seconds estimated_seconds(const deck::Config& config, const StepCosts& costs) {
  return StepEstimate().seconds(config, costs);
}

StepTime simulated_time(const deck::Config& config, const Architecture& a, const StepCosts& costs,
                        const schedule::Program& program) {
  const deck::ParallelConfig& p = config.parallel;
  const auto m = static_cast<double>(config.micro_batches());
  const schedule::Simulation simulation = schedule::simulate(program, cost_of(costs));
  StepTime time;
  time.idle_share = simulation.timeline.idle_share();
  if (program.layout.overlaps_steps())
    time.seconds = schedule::steady_step(simulation.timeline).seconds;
  else
    for (const schedule::Event& e : simulation.timeline.events)
      time.seconds = std::max(time.seconds, e.end);
  const bool split = splits_backward(program);
  const std::vector<RankWork> ranks = work_of_ranks(p, split, costs);
  const Seconds tail = program.layout.overlaps_steps() ? 0 : tail_seconds(p, split, ranks, costs);
  time.seconds = std::max(time.seconds, shared_work(ranks, m, costs) + tail);

  const auto busiest = static_cast<std::size_t>(
      std::ranges::max_element(ranks, {}, [](const RankWork& r) { return r.passes.total(); }) -
      ranks.begin());
  const RankWork& rank = ranks[busiest];
  time.of(Cause::compute) = m * rank.passes.compute;
  time.of(Cause::tensor) = m * rank.passes.tensor;
  time.of(Cause::host) = m * rank.passes.host;
  time.of(Cause::pipeline) = m * rank.messages * costs.waiting;
  for (const Stage s : p.stage_map().stages_of(static_cast<Rank>(busiest)))
    time.of(Cause::data) += costs.reductions[static_cast<std::size_t>(s)];
  if (busiest == 0 || busiest + 1 == ranks.size()) time.of(Cause::data) += costs.tied;
  time.of(Cause::data) += m * rank.passes.data + costs.gathers[busiest];
  time.of(Cause::optimizer) = costs.norm + costs.updates[busiest];
  time.of(Cause::bubble) =
      time.seconds - std::accumulate(time.shares.begin(), time.shares.end(), 0.0);

  const double tokens = static_cast<double>(config.batch.global * config.model.sequence);
  time.model_flops = a.model_flops_per_token() * tokens;
  const auto kept = kept_tensors(p, a);
  time.hardware_flops = time.model_flops;
  const auto stage_layers = architecture::partition(a, deck::ParallelConfig{});
  const StageFlops flops =
      stage_flops(a, stage_layers, kept, architecture::head_gradient(p)).front();
  time.hardware_flops += tokens * (split ? flops.again_input + flops.again_weight : flops.again);
  return time;
}

StepTime predict_step(const deck::Config& config, const Architecture& a,
                      const schedule::Program& program, const Machine& machine) {
  const bool split = splits_backward(program);
  StepTime time = simulated_time(
      config, a, step_costs(config, a, part_times(config, a, split, machine), machine), program);
  // A rank trains several workers of local training in sequence.
  const auto turns = static_cast<double>(config.parallel.workers_per_rank());
  time.seconds *= turns;
  for (Seconds& share : time.shares) share *= turns;
  return time;
}

}  // namespace trireme::plan
