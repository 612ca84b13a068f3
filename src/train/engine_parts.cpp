// Construction of a rank's model, transfers, optimizer and gradient reduction.
#include <trireme/train/engine_parts.hpp>

#include <trireme/architecture/fp8.hpp>
#include <trireme/architecture/server_ranges.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/plan/reduction_scratch.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme::train {
namespace {

schedule::ProgramLayout layout_of(const deck::Config& config, const plan::Machine& machine,
                                  std::span<const schedule::Program> programs) {
  if (!programs.empty()) return programs.back().layout;
  schedule::ProgramLayout layout;
  layout.ranks = static_cast<int>(config.parallel.pipeline);
  layout.chunks = static_cast<int>(config.parallel.chunks);
  layout.placement = config.parallel.stage_map().placement;
  layout.transport = plan::transport(config.parallel, machine);
  layout.shares_vocabulary = config.parallel.shares_vocabulary();
  return layout;
}

/// Number of tokens of a micro-batch on this context rank.
std::int64_t tokens_of(const deck::Config& config, const grid::Communicator& context) {
  return config.batch.micro *
         layout::split(config.model.sequence, context.size(), context.rank()).extent;
}

/// Ranks that divide the samples; with parameter servers, without the servers' ranks.
grid::Communicator& samples_group(const deck::ParallelConfig& parallel, grid::Grid& grid) {
  return parallel.has_servers() ? grid.part_of_data_axis(static_cast<int>(parallel.data))
                                : grid.communicator(Axis::data);
}

/// The ranks of `replicas` that sum and own the buckets of ordinary arrays and of experts.
optim::BucketGroups groups_of(const deck::ParallelConfig& parallel, grid::Grid& grid,
                              grid::Communicator& replicas) {
  return {replicas, grid.with_same_experts(replicas, static_cast<int>(parallel.expert))};
}

/// Division of arrays among the replicas. A rank that only evaluates has whole weights.
model::Replicas replicas_of(const deck::Config& config, const grid::Communicator& shards,
                            bool training) {
  if (!training) return {};
  return {architecture::division_of(config), shards.rank(), shards.size(),
          config.parallel.bucket_bytes, config.parallel.sequence_parallel};
}

/// Exponent of the first scale of fp8 gradients: ⌊log2 n⌋ for the n targets of a global batch, at
/// most fp8_scale_limit. The gradient of a mean over n targets is proportional to 1 / n.
int fp8_gradient_exponent(const deck::Config& config) {
  const std::int64_t tokens = config.batch.global * config.model.targets();
  return std::min(fp8_scale_limit, std::ilogb(static_cast<double>(tokens)));
}

}  // namespace

kernels::LossScaling loss_scaling(const deck::PrecisionConfig& precision) {
  if (precision.compute != DType::fp16) return {};
  return {precision.loss_scale_interval};
}

double initial_loss_scale(const deck::PrecisionConfig& precision) {
  return precision.compute == DType::fp16 ? precision.loss_scale : 1;
}

template <class P>
EngineParts<P>::EngineParts(const deck::Config& config,
                            const architecture::Architecture& architecture, grid::Grid& grid,
                            const plan::Machine& machine, const kernels::KernelChoice& choice,
                            std::span<const schedule::Program> programs)
    : data(samples_group(config.parallel, grid)),
      context(grid.communicator(Axis::context)),
      replicas(config.parallel.has_servers() ? data : grid.replicas()),
      shards(config.parallel.has_servers()
                 ? data
                 : grid.shard_group(static_cast<int>(config.parallel.shard_ranks()))),
      experts(config.parallel.expert > 1 ? &grid.experts(static_cast<int>(config.parallel.expert))
                                         : nullptr),
      replica_groups(groups_of(config.parallel, grid, replicas)),
      shard_groups(groups_of(config.parallel, grid, shards)),
      pipeline(grid.communicator(Axis::pipeline)),
      tensor(grid.communicator(Axis::tensor)),
      model_group(grid.model()),
      embedding(grid.embedding()),
      axis(tensor, tokens_of(config, context), config.parallel.sequence_parallel,
           model::ContextAxis(context, config.model.sequence),
           experts != nullptr ? model::ExpertAxis(*experts) : model::ExpertAxis(),
           config.batch.micro * config.model.source_rows()),
      parameters(architecture,
                 architecture::make_shard(architecture, config.parallel, grid.coordinates()),
                 !programs.empty(), replicas_of(config, shards, !programs.empty())),
      layout(layout_of(config, machine, programs)) {
  const bool training = !programs.empty();
  if (training && config.parallel.overlaps_steps())
    other_version.emplace(architecture, parameters.shard());
  const auto rank = static_cast<std::size_t>(pipeline.rank());
  const schedule::Needs needs =
      training ? plan::training_needs(programs)[rank] : plan::evaluation_needs(layout)[rank];
  slots = std::max(1, needs.slots);
  const bool shared = config.parallel.shares_vocabulary();
  if (shared) logits_slots = std::max(1, needs.logits_slots);
  if (training) make_optimizer(config, architecture, grid, machine);
  const auto kept = training ? plan::kept_tensors(config.parallel, architecture)
                             : std::vector<architecture::Kept>{};
  if (config.precision.products == Products::fp8)
    fp8.emplace(architecture::fp8_tensors(architecture), config.precision,
                fp8_gradient_exponent(config));
  model.emplace(architecture, parameters, axis,
                typename model::RankModel<P>::Shape{
                    config.batch.micro, slots, training, needs.split_backward,
                    training ? config.parallel.recompute : Recompute::none,
                    training && plan::offloads_activations(config.parallel, machine), kept,
                    machine.logit_elements(), fp8 ? &*fp8 : nullptr,
                    training ? architecture::head_gradient(config.parallel)
                    : shared ? architecture::HeadGradient::shared_again
                             : architecture::HeadGradient::with_losses,
                    choice, logits_slots, access ? &*access : nullptr,
                    other_version && other_version->access ? &*other_version->access : nullptr},
                other_version ? &other_version->parameters : nullptr);
  if (shared) make_vocabulary(config, architecture, grid, machine);
  transfers.emplace(
      pipeline, axis, layout.map(), model->sizes(),
      typename Transfers<T>::Buffers{needs.received_activations, needs.received_gradients,
                                     needs.handed_over, needs.send_buffers, training});
}

template <class P>
RankVocabulary<P>::RankVocabulary(grid::Grid& grid, const architecture::RankSizes& sizes)
    : inputs(&grid.another(Axis::pipeline, "look-ups")),
      outputs(&grid.another(Axis::pipeline, "outputs")),
      logits(&grid.another(Axis::pipeline, "logits")),
      input_gradients(&grid.another(Axis::pipeline, "look-ups' gradients")) {
  const auto take = [&](Arena& arena) {
    slices.clear();
    for (int i = 0; i < 4 * schedule::shared_buffers; ++i)
      slices.push_back(arena.take<T>(sizes.slice, sizes.hidden));
    statistics = arena.take<double>(inputs->size() * sizes.targets * 3);
  };
  Arena plan;
  take(plan);
  memory = Arena("messages of a shared vocabulary", plan.used());
  take(memory);
}

template <class P>
void EngineParts<P>::make_vocabulary(const deck::Config& config,
                                     const architecture::Architecture& architecture,
                                     grid::Grid& grid, const plan::Machine& machine) {
  vocabulary.emplace(grid, model->sizes());
  const auto scratch = plan::reduction_scratch(
      config, architecture, parameters.shard(),
      parameters.bucket_cut(config.parallel.bucket_bytes, replicas.size()), machine);
  for (grid::Communicator* sums : std::array{vocabulary->inputs, vocabulary->logits})
    sums->reserve_scratch(scratch.vocabulary);
}

template <class P>
void EngineParts<P>::make_optimizer(const deck::Config& config,
                                    const architecture::Architecture& architecture,
                                    grid::Grid& grid, const plan::Machine& machine) {
  const bool shared = config.parallel.divides_state();
  // With several shard groups, each part of a bucket has an owner in every group: all-reduce.
  const bool scatter = shared && shards.size() == replicas.size();
  const bool served = config.parallel.has_servers();
  const architecture::BucketCut cut =
      served ? architecture::server_cut(config.parallel, architecture, parameters.shard(),
                                        parameters.rank_arrays(), parameters.placement(),
                                        sizeof(typename P::Gradient))
             : parameters.bucket_cut(config.parallel.bucket_bytes, shards.size());
  const std::int64_t elements = parameters.placement().trained;
  const std::int64_t head = architecture.head_block();
  const auto buckets = architecture::gradient_buckets(cut);
  const auto& arrays = parameters.rank_arrays();
  const architecture::Placement& placement = parameters.placement();
  const rules::Matrices matrices = config.optimizer.rule().matrices;
  architecture::StatePlacement none;  // for a worker, whose state is on servers
  none.whole = false;
  auto state = served ? none
               : shared
                   ? architecture::owned_state(arrays, placement, buckets, shards.rank(), matrices)
                   : architecture::whole_state(arrays, placement, matrices);
  const std::int64_t capacity = shared ? architecture::most_state_elements(cut) : state.elements;
  const auto scratch =
      plan::reduction_scratch(config, architecture, parameters.shard(), cut, machine);
  replicas.reserve_scratch(scratch.data);
  if (experts != nullptr) {
    replica_groups.experts.reserve_scratch(scratch.experts);
    experts->reserve_scratch(scratch.divided);
  }
  tensor.reserve_scratch(scratch.tensor);
  if (parameters.shard().has_head()) context.reserve_scratch(scratch.context);
  embedding.reserve_scratch(scratch.embedding);
  pipeline.reserve_scratch(scratch.pipeline);
  using Optimizer = optim::Optimizer<P>;
  typename Optimizer::Options options;
  options.loss_scaling = loss_scaling(config.precision);
  if (plan::offloads_optimizer(config.parallel, machine)) options.state_memory = ArenaMemory::host;
  options.tensor = &tensor;
  options.other_capacity = shared ? architecture::most_state_elements(cut, matrices) : state.others;
  options.experts = experts;
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  optimizer.emplace(config.optimizer, architecture, parameters, grid.model(), shard_groups,
                    std::move(state), capacity, options);
  if (config.run.gradient_noise_scale)
    noise.emplace(architecture, parameters, grid.model(), replicas);
  shared_gradients.emplace(grid, config.model, parameters);
  reducer.emplace(replica_groups, parameters.all_gradients(), parameters.gradient_places(), head,
                  buckets, scatter);
  if (shared && parameters.weight_places().has_windows())
    weight_gather.emplace(shard_groups, parameters.all_weights(), parameters.weight_places(),
                          placement.elements,
                          architecture::gradient_buckets(parameters.weight_cut()));
  else if (shared)
    weight_gather.emplace(shard_groups, parameters.all_weights(), parameters.weight_places(),
                          elements, buckets);
  access.emplace(weight_gather ? &*weight_gather : nullptr, *reducer);
  if (served) {
    servers.emplace(config.parallel, grid, parameters, *optimizer);
    reducer->send_to([this](const Exec& exec, std::size_t bucket) { servers->push(exec, bucket); });
  }
  if (!other_version) return;
  other_version->shared_gradients.emplace(grid, config.model, other_version->parameters);
  model::Parameters<P>& other = other_version->parameters;
  other_version->reducer.emplace(replica_groups, other.all_gradients(), other.gradient_places(),
                                 head, buckets, scatter);
  if (shared)
    other_version->weight_gather.emplace(shard_groups, other.all_weights(), other.weight_places(),
                                         elements, buckets);
  other_version->access.emplace(
      other_version->weight_gather ? &*other_version->weight_gather : nullptr,
      *other_version->reducer);
}

template <class P>
void EngineParts<P>::copy_second_weights(const Exec& exec, std::int64_t step) {
  if (!other_version) return;
  kernels::copy<T>(exec, parameters_of(step + 1).all_weights(), parameters_of(step).all_weights());
  parameters_of(step + 1).changed();
}

template struct RankVocabulary<model::Fp32>;
template struct RankVocabulary<model::Fp64>;
template struct RankVocabulary<model::MixedBf16>;
template struct RankVocabulary<model::MixedFp16>;
template struct EngineParts<model::Fp32>;
template struct EngineParts<model::Fp64>;
template struct EngineParts<model::MixedBf16>;
template struct EngineParts<model::MixedFp16>;

}  // namespace trireme::train
