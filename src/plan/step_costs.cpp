// Costs of the instructions of a step: passes, messages between stages, and the update.
#include <trireme/plan/step_costs.hpp>

#include <trireme/architecture/ends.hpp>
#include <trireme/architecture/frozen.hpp>
#include <trireme/architecture/hidden_matrices.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/plan/gather_time.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/muon.hpp>
#include <trireme/plan/network_time.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

using architecture::Architecture;
using architecture::Collective;

/// Bytes that the update of a parameter moves, including the norm of its gradient. A rule with
/// matrices updates most parameters as matrices.
double update_bytes(const deck::Config& config, const TypedSizes& sizes, const Machine& machine) {
  if (machine.software.optimizer_bytes > 0) return machine.software.optimizer_bytes;
  const rules::Description& rule = config.optimizer.rule();
  Bytes bytes = sizes.accumulate + (sizes.narrow() ? sizes.element : 0);
  for (const rules::Pass& pass : rule.passes(config.optimizer)) {
    if (pass.of == rules::Arrays::others) continue;
    switch (pass.kind) {
      case rules::PassKind::elements:  // target and state are read and written, the input is read
        bytes += 3 * sizes.accumulate + 2 * pass.states * sizes.moment;
        break;
      case rules::PassKind::norms:
        bytes += pass.norms * sizes.accumulate;
        break;
      case rules::PassKind::means:  // sums of rows and of columns read the gradient
      case rules::PassKind::factored:
        bytes += 2 * sizes.accumulate;
        break;
      case rules::PassKind::whole_matrices:  // add_muon()
        break;
    }
  }
  return static_cast<double>(bytes);
}

/// Mean number of an array's elements on a rank.
double held_elements(const architecture::ArraySpec& array, const deck::ParallelConfig& p) {
  const std::int64_t parts =
      (array.tensor_cut() == nullptr ? 1 : p.tensor) * (array.of_experts() ? p.expert : 1);
  return static_cast<double>(array.elements()) / static_cast<double>(parts);
}

/// Number of trained parameters of a part of the model on a tensor rank, without a tied table.
double part_parameters(const architecture::BlockDescription& part, const deck::ParallelConfig& p) {
  double n = 0;
  for (const architecture::Operation& op : part.operations)
    for (const architecture::ArraySpec& array : op.arrays)
      if (!array.tied && !array.frozen) n += held_elements(array, p);
  return n;
}

/// Number of trained or frozen parameters of a layer's experts on a rank.
double expert_parameters(const architecture::BlockDescription& layer, const deck::ParallelConfig& p,
                         bool frozen) {
  double n = 0;
  for (const architecture::Operation& op : layer.operations)
    for (const architecture::ArraySpec& array : op.arrays)
      if (array.of_experts() && array.frozen == frozen) n += held_elements(array, p);
  return n;
}

/// Numbers of trained or frozen parameters of a tensor rank by stage, for a model whose layers may
/// differ. Tables of a `shared` vocabulary are divided among all stages.
std::vector<double> parameters_of(const Architecture& a,
                                  const std::vector<layout::Slice>& stage_layers,
                                  const deck::ParallelConfig& p, bool frozen) {
  const bool shared = p.shares_vocabulary();
  std::vector<double> all(stage_layers.size());
  for (const architecture::ArraySpec& array : a.arrays) {
    if (array.frozen != frozen) continue;
    const double n = held_elements(array, p);
    if (shared && array.of_vocabulary()) {
      for (double& stage : all) stage += n / static_cast<double>(all.size());
      continue;
    }
    const std::int64_t layer = array.block - architecture::block_of_layer(0);
    std::size_t stage = array.block == 0 ? 0 : all.size() - 1;
    for (std::size_t s = 0; s < all.size(); ++s)
      if (stage_layers[s].offset <= layer && layer < stage_layers[s].end()) stage = s;
    all[stage] += n;
    if (a.model.tied_embeddings && array.of_vocabulary() && all.size() > 1) all.back() += n;
  }
  return all;
}

/// Number of trained parameters of a tensor rank by stage. A tied embedding table counts in the
/// first and in the last stage; tables of a shared vocabulary are divided among all stages.
std::vector<double> stage_parameters(const Architecture& a,
                                     const std::vector<layout::Slice>& stage_layers,
                                     const deck::ParallelConfig& p) {
  const bool shared = p.shares_vocabulary();
  std::vector<double> of_kinds;
  for (const architecture::BlockDescription& layer : a.layer_kinds())
    of_kinds.push_back(part_parameters(layer, p));
  const double table = a.model.tied_embeddings
                           ? static_cast<double>(a.model.vocabulary) *
                                 static_cast<double>(a.model.hidden) / static_cast<double>(p.tensor)
                           : 0;
  std::vector<double> all;
  all.reserve(stage_layers.size());
  if (a.has_frozen) return parameters_of(a, stage_layers, p, false);
  for (const layout::Slice& layers : stage_layers) {
    const std::vector<std::int64_t> counts = a.count_kinds(layers);
    double& stage = all.emplace_back();
    for (std::size_t k = 0; k < counts.size(); ++k)
      stage += of_kinds[k] * static_cast<double>(counts[k]);
  }
  all.front() += part_parameters(a.embedding(), p);
  all.back() += part_parameters(a.head(), p) + (all.size() > 1 && !shared ? table : 0);
  if (shared) {
    const double tables = static_cast<double>(a.model.vocabulary) *
                          static_cast<double>(a.model.hidden) / static_cast<double>(p.tensor);
    all.front() -= tables;
    if (!a.model.tied_embeddings) all.back() -= tables;
    for (double& stage : all)
      stage += tables * (a.model.tied_embeddings ? 1 : 2) / static_cast<double>(all.size());
  }
  return all;
}

/// Adds the time of orthogonalisation, products and messages, to the update of each pipeline rank.
void add_muon(StepCosts& costs, const deck::Config& config, const Architecture& a,
              const Machine& machine, double turns) {
  const deck::ParallelConfig& p = config.parallel;
  deck::PrecisionConfig precision = config.precision;
  precision.products = Products::compute;
  if (size_of(precision.compute) == 2) precision.compute = DType::fp32;
  const KernelTime kernels(machine, precision);
  const NetworkTime network(machine, p);
  const auto element = static_cast<double>(size_of(precision.compute));
  const auto replicas = static_cast<int>(p.shard_ranks());
  const auto time_of = [&](const architecture::MatrixRounds& rounds) {
    Seconds time = 0;
    for (int round = 0; round < rounds.rounds(); ++round) {
      const architecture::HiddenMatrix& m = *rounds.matrix(round, 0, 0);
      const auto steps = static_cast<double>(config.optimizer.newton_schulz_steps);
      const double gram = static_cast<double>(m.side() * m.side()) * element;
      const double all = static_cast<double>(m.elements()) * element;
      const std::int64_t longer = m.elements() / m.side();
      time += turns * steps *
              (2 * kernels.product({m.side(), longer, m.side()}, gram + 2 * all) +
               kernels.product({m.side(), m.side(), m.side()}, 3 * gram));
    }
    const MuonTraffic traffic = muon_traffic(rounds, 0, 0, p.divides_state());
    const auto among = [&](Collective kind, const MessageSum& m) {
      const double bytes = static_cast<double>(m.elements) * element;
      return rounds.replicas() < replicas ? network.among_expert_shards(kind, bytes)
                                          : network.among_shards(kind, bytes);
    };
    const auto over_tensor = [&](const MessageSum& m) {
      return network.collective(Collective::all_gather, static_cast<double>(m.elements) * element,
                                Axis::tensor);
    };
    return time + among(Collective::reduce_scatter, traffic.collected) +
           among(Collective::all_gather, traffic.returned) + over_tensor(traffic.gathered) +
           over_tensor(traffic.broadcast);
  };
  for (std::size_t rank = 0; rank < costs.updates.size(); ++rank) {
    const architecture::Shard shard = architecture::make_shard(a, p, static_cast<int>(rank), 0);
    for (const architecture::MatrixRounds& rounds :
         architecture::matrix_rounds(a, shard, architecture::rank_arrays(a, shard), replicas))
      costs.updates[rank] += time_of(rounds);
  }
}

/// Adds the sums of gradients of all micro-batches but the last, which are not a part of
/// `reductions`, to the backward passes.
void add_sums(StepCosts& costs, double micro_batches) {
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const Seconds sums = costs.reductions[s] * (micro_batches - 1) / micro_batches;
    costs.stages[s].backward.data += sums;
    costs.stages[s].backward_weight.data += sums;
  }
}

/// Number of ranks per processor of a node, at least 1. `of_stage` counts the ranks of one stage,
/// which compute at the same time; `of_all` counts all ranks.
struct Turns {
  double of_stage = 1;
  double of_all = 1;
};
Turns turns_of(const deck::ParallelConfig& p, const Machine& machine) {
  const std::int64_t ranks = p.ranks();
  const std::int64_t on_node =
      machine.node.devices == 0 ? ranks : std::min(ranks, machine.node.devices);
  if (machine.node.processors == 0 || on_node <= machine.node.processors) return {};
  const auto processors = static_cast<double>(machine.node.processors);
  const std::int64_t at_once = std::min(on_node, ranks / p.pipeline);
  return {std::max(1.0, static_cast<double>(at_once) / processors),
          static_cast<double>(on_node) / processors};
}

/// Multiplies the times of kernels and host. Times of messages are measured while all ranks send.
void take_turns(BlockTime& stage, double turns) {
  for (PassTime* pass :
       {&stage.forward, &stage.backward, &stage.backward_input, &stage.backward_weight}) {
    pass->compute *= turns;
    pass->host *= turns;
  }
}

}  // namespace

BlockTimes part_times(const deck::Config& config, const Architecture& a, bool split_backward,
                      const Machine& machine) {
  deck::ParallelConfig one_stage;
  one_stage.tensor = config.parallel.tensor;
  one_stage.context = config.parallel.context;
  one_stage.expert = config.parallel.expert;
  auto shard = architecture::make_shard(a, one_stage, 0, 0);
  const bool shared = config.parallel.shares_vocabulary();
  if (shared) shard.vocabulary_stages = static_cast<int>(config.parallel.pipeline);
  const KernelTime kernels(machine, config.precision);
  const NetworkTime network(machine, config.parallel);
  const BlockTimeModel time(a, typed_sizes(config, shard, machine), kernels, network, machine);
  const architecture::HeadGradient gradient = architecture::head_gradient(config.parallel);
  BlockTimes times;
  for (const auto& program : layer_programs(config, a, shard, split_backward, machine)) {
    times.layers.push_back(time.layer(a.layer_kinds()[times.layers.size()], program));
    times.weight_half_reads |= architecture::reads_weights(program.backward_weight);
  }
  if (!shared) times.embedding = time.embedding();
  times.head = time.head(gradient);
  if (shared) times.shared_logits = time.shared_logits(gradient);
  return times;
}

BlockTime BlockTimes::of_layers(const std::vector<std::int64_t>& counts) const {
  BlockTime sum;
  for (std::size_t k = 0; k < layers.size(); ++k) sum += layers[k] * static_cast<double>(counts[k]);
  return sum;
}

StageSizes stage_sizes(const deck::Config& config, const Architecture& a) {
  const deck::ParallelConfig& p = config.parallel;
  StageSizes sizes;
  sizes.layers = architecture::partition(a, p);
  sizes.parameters = stage_parameters(a, sizes.layers, p);
  if (a.has_frozen) sizes.frozen = parameters_of(a, sizes.layers, p, true);
  const auto of_experts = [&](bool frozen) {
    std::vector<double> all(sizes.layers.size());
    for (std::size_t s = 0; s < all.size() && p.expert > 1; ++s) {
      const std::vector<std::int64_t> counts = a.count_kinds(sizes.layers[s]);
      for (std::size_t k = 0; k < counts.size(); ++k)
        all[s] += expert_parameters(a.layer_kinds()[k], p, frozen) * static_cast<double>(counts[k]);
    }
    return all;
  };
  sizes.experts = of_experts(false);
  if (a.has_frozen) sizes.frozen_experts = of_experts(true);
  const auto add = [&](const architecture::ArraySpec& array) {
    const double n = held_elements(array, p);
    const bool table = array.of_vocabulary();
    if (table && p.shares_vocabulary())
      sizes.tables += n / static_cast<double>(sizes.layers.size());
    else if (array.block == 0)
      sizes.embedding += n;
    else if (array.block == a.head_block())
      sizes.head += n;
    if (table && a.model.tied_embeddings && !p.shares_vocabulary() && sizes.layers.size() > 1)
      sizes.head += n;
  };
  // The embedding's arrays are the first and the head's arrays the last in the list, with up to a
  // million arrays between them.
  const auto& arrays = a.arrays;
  const auto layers = std::ranges::find_if(arrays, [](const auto& x) { return x.block > 0; });
  const auto head = std::ranges::partition_point(
      layers, arrays.end(), [&](const auto& x) { return x.block < a.head_block(); });
  std::for_each(arrays.begin(), layers, add);
  std::for_each(head, arrays.end(), add);
  return sizes;
}

StepCosts step_costs(const deck::Config& config, const Architecture& a, const BlockTimes& parts,
                     const Machine& machine) {
  return step_costs(config, a, parts, stage_sizes(config, a), machine);
}

StepCosts step_costs(const deck::Config& config, const Architecture& a, const BlockTimes& parts,
                     const StageSizes& given, const Machine& machine) {
  const deck::ParallelConfig& p = config.parallel;
  const Machine::Software& software = machine.software;
  const std::vector<layout::Slice>& stage_layers = given.layers;
  const std::size_t stages = stage_layers.size();
  const layout::StageMap map = p.stage_map();
  const auto ranks = static_cast<std::size_t>(p.pipeline);
  const auto rank_of = [&map](std::size_t s) {
    return static_cast<std::size_t>(map.rank_of(static_cast<Stage>(s)));
  };
  const NetworkTime network(machine, p);
  architecture::Shard shard;  // sizes do not depend on its stages
  shard.tensor_size = static_cast<int>(p.tensor);
  shard.context_size = static_cast<int>(p.context);
  const TypedSizes sizes = typed_sizes(config, shard, machine);
  StepCosts costs;
  const Turns shared = turns_of(p, machine);
  const double turns = shared.of_stage;
  costs.crowding = shared.of_all / turns;
  costs.stages.reserve(stages);
  costs.waiting = 1 - software.pipeline_overlap;

  const auto whole = static_cast<double>(
      (sizes.tokens * sizes.hidden + sizes.source.tokens * sizes.source.hidden) * sizes.element);
  const bool cut = software.scatter_gather || sizes.cuts_tokens;
  const double sent = cut ? whole / static_cast<double>(p.tensor) : whole;
  PassTime gather;
  if (cut && !sizes.cuts_tokens)
    gather.tensor = network.collective(Collective::all_gather, whole, Axis::tensor);
  for (std::size_t s = 0; s < stages; ++s) {
    const layout::Slice& layers = stage_layers[s];
    BlockTime stage = parts.of_layers(a.count_kinds(layers));
    if (const std::int64_t first = a.first_with_backward(layers); first > layers.offset) {
      BlockTime backward = parts.of_layers(a.count_kinds({first, layers.end() - first}));
      backward.forward = stage.forward;
      stage = backward;
    }
    if (s == 0) stage += parts.embedding;
    if (s + 1 == stages) stage += parts.head;
    const auto here = static_cast<Stage>(s);
    const bool is_last = s + 1 == stages;
    if (s > 0 && !map.hands_over(here - 1)) stage.forward += gather;
    if (!is_last && !map.hands_over(here)) {
      stage.backward += gather;
      stage.backward_input += gather;
    }
    take_turns(stage, turns);
    costs.stages.push_back(stage);
    const auto message = [&](Stage to) {
      return network.message(sent, map.rank_of(std::min(here, to)),
                             map.rank_of(std::max(here, to)));
    };
    costs.activations.push_back(is_last ? 0 : message(here + 1));
    costs.gradients.push_back(s == 0 ? 0 : message(here - 1));
  }

  costs.logits = parts.shared_logits.forward;
  costs.logits_gradient = parts.shared_logits.backward_weight;
  for (PassTime* pass : {&costs.logits, &costs.logits_gradient}) {
    pass->compute *= turns;
    pass->host *= turns;
  }
  if (p.shares_vocabulary())
    costs.shared = network.collective(Collective::reduce_scatter, sent, Axis::pipeline);

  const std::vector<double>& parameters = given.parameters;
  const double gradient = software.gradient_bytes > 0 ? static_cast<double>(software.gradient_bytes)
                                                      : static_cast<double>(sizes.accumulate);
  costs.updates.assign(ranks, 0);
  costs.gathers.assign(ranks, 0);
  const KernelTime kernels(machine, config.precision);
  const bool shares = p.divides_state();
  const bool scatters = shares && p.shard_ranks() == p.replicas();
  for (std::size_t s = 0; s < stages; ++s) {
    const double experts = given.experts[s], others = parameters[s] - experts;
    const Collective sum = scatters ? Collective::reduce_scatter : Collective::all_reduce;
    costs.reductions.push_back(network.collective(sum, others * gradient, Axis::data));
    double updated = others / static_cast<double>(shares ? p.shard_ranks() : 1);
    if (experts > 0) {
      costs.reductions.back() += network.among_same_experts(sum, experts * gradient);
      updated += experts / static_cast<double>(shares ? p.shard_ranks() / p.expert : 1);
    }
    costs.updates[rank_of(s)] +=
        turns *
        kernels.memory(updated * update_bytes(config, sizes, machine), machine.kernels.update);
  }
  add_gathers(costs, config, a, parts, given, costs.reductions, static_cast<double>(sizes.element),
              turns, network, machine);
  for (Seconds& sum : costs.reductions) sum *= 1 - software.gradient_overlap;
  if (software.sums_each_pass) add_sums(costs, static_cast<double>(config.micro_batches()));
  if (config.optimizer.rule().has(rules::PassKind::whole_matrices, config.optimizer))
    add_muon(costs, config, a, machine, turns);
  if (a.model.tied_embeddings && !p.shares_vocabulary() &&
      !architecture::is_frozen(a.model, "embedding.token") &&
      map.rank_of(0) != map.rank_of(map.last_stage()))
    costs.tied = network.first_and_last(static_cast<double>(a.model.vocabulary * a.model.hidden) /
                                        static_cast<double>(p.tensor) * gradient);
  costs.norm = network.collective(Collective::all_reduce, 8, Axis::tensor) +
               network.collective(Collective::all_reduce, 8, Axis::pipeline);
  if (shares) costs.norm += network.among_shards(Collective::all_reduce, 8);
  return costs;
}

}  // namespace trireme::plan
