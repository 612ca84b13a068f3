// Time of a step from the costs of its instructions: by a formula, or by simulation of the program.
#include <trireme/plan/step_time.hpp>

#include <trireme/architecture/shard.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/overlap.hpp>

#include <algorithm>
#include <cmath>
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

/// Time of the passes of m micro-batches with 1f1b on p ranks. The first micro-batch passes all
/// ranks and returns. Rank r keeps p − r micro-batches in flight, which take as long as one
/// micro-batch through ranks r to p − 1, or as the slowest rank needs for p − r micro-batches.
Seconds alternating_seconds(double m, Seconds longest, const std::vector<RankWork>& ranks,
                            const StepCosts& costs) {
  Seconds loop = 0, delay = 0;
  double flying = 0;
  for (std::size_t r = ranks.size(); r-- > 0;) {
    flying += 1;
    loop += ranks[r].all() + (1 - costs.waiting) * ranks[r].messages;
    const double rounds = std::floor((m - 1) / flying);
    const double further = m - 1 - rounds * flying;
    delay = std::max(delay, rounds * std::max(loop, flying * longest) + further * longest);
  }
  return loop + delay;
}

/// Time of the passes of m micro-batches: the work of the slowest rank, and the time that the
/// schedule leaves it idle.
Seconds pass_seconds(const deck::ParallelConfig& p, double m, const std::vector<RankWork>& ranks,
                     const StepCosts& costs) {
  Seconds longest = 0, loop = 0, weights = 0, hops = 0, forward = 0, backward = 0,
          first = -ranks.back().forward;
  for (const RankWork& rank : ranks) {
    longest = std::max(longest, rank.all());
    forward = std::max(forward, rank.forward);
    backward = std::max(backward, rank.backward);
    loop += rank.all() + (1 - costs.waiting) * rank.messages;
    weights += rank.weight;
    first += rank.forward;
    hops += rank.messages;
  }
  const auto ranks_number = static_cast<double>(p.pipeline);
  const auto chunks = static_cast<double>(p.chunks);
  switch (p.schedule) {
    case ScheduleKind::two_bw:
      return m * longest;
    case ScheduleKind::gpipe:
      return loop + (m - 1) * (forward + backward);
    case ScheduleKind::one_forward_one_backward:
    case ScheduleKind::automatic:
    case ScheduleKind::file:
      return alternating_seconds(m, longest, ranks, costs);
    case ScheduleKind::interleaved: {
      if (m <= ranks_number) return loop + (m - 1) * longest / chunks;
      // If the number of ranks does not divide m, the last round of micro-batches is incomplete,
      // but takes as long as a complete round in all chunks but the last.
      const double missing = std::ceil(m / ranks_number) * ranks_number - m;
      return m * longest + (loop - longest) / chunks +
             missing * (chunks - 1) / chunks * std::max(forward, backward);
    }
    case ScheduleKind::zb_h1: {
      // Available weight gradients fill a part of the wait for other ranks. The wait is at least
      // the time until the last rank has its first input.
      const double moved = (ranks_number - 1 + std::min(m - 1, ranks_number - 1)) / ranks_number;
      return m * longest + std::max(loop - longest - moved * weights, first + hops / 2);
    }
    // `alone`: time of a single micro-batch, which waits for no weight half but the last. With
    // v-min, the slowest rank waits for the rest of this time; with zb-v, until the last rank has
    // its first input.
    case ScheduleKind::zb_v:
    case ScheduleKind::v_half:
    case ScheduleKind::v_min: {
      const Seconds alone = loop - weights + ranks.front().weight / chunks;
      Seconds wait = first / chunks + hops / 4;
      if (p.schedule == ScheduleKind::v_half) wait = (loop - longest * 4 / 3) / 2;
      if (p.schedule == ScheduleKind::v_min) wait = alone - longest;
      return std::max(alone, m * longest + std::max(0.0, wait));
    }
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
  return [costs = std::move(costs)](const schedule::Instr& i) -> Seconds {
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
  };
}

std::string_view name_of(Cause cause) {
  return cause_names[static_cast<std::size_t>(cause)];
}

Seconds estimated_seconds(const deck::Config& config, const StepCosts& costs) {
  const deck::ParallelConfig& p = config.parallel;
  const auto m = static_cast<double>(config.micro_batches());
  const bool split = p.splits_backward();
  const std::vector<RankWork> ranks = work_of_ranks(p, split, costs);
  return std::max(pass_seconds(p, m, ranks, costs), shared_work(ranks, m, costs)) +
         tail_seconds(p, split, ranks, costs);
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
