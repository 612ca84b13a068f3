// Memory that reductions of gradients and of messages need on a rank, for each transport, and the
// largest messages of both.
#include <trireme/plan/reduction_scratch.hpp>

#include <trireme/architecture/fp8.hpp>
#include <trireme/architecture/matrix_axes.hpp>
#include <trireme/base/reduction.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

/// Bytes for the sums of a bucket. `size`: bytes of an element.
Bytes bucket_scratch(const deck::ParallelConfig& parallel, const architecture::BucketRun& run,
                     Bytes size) {
  const auto ranks = static_cast<int>(parallel.replicas()) / run.expert_ranks;
  if (ranks == 1) return 0;
  if (!parallel.divides_state() || parallel.shard_ranks() < parallel.replicas())
    return device_reduction_scratch_bytes(run.size() * size, ranks);
  const Bytes most = device_reduction_segment_bytes(ranks);
  Bytes longest = 0;
  architecture::visit_parts(run, [&](int, std::int64_t begin, std::int64_t end) {
    longest = std::max(longest, (end - begin) * size);
  });
  return std::min(longest, most) * (ranks - 1);
}

}  // namespace

Bytes activation_scratch(const deck::Config& config, const TypedSizes& sizes,
                         const Machine& machine) {
  if (transport(config.parallel, machine) == schedule::Transport::independent_channels) return 0;
  return device_reduction_scratch_bytes(std::max(sizes.tokens, sizes.source.tokens) *
                                            std::max(sizes.hidden, sizes.source.hidden) *
                                            sizes.element,
                                        static_cast<int>(sizes.tensor_ranks));
}

ReductionScratch reduction_scratch(const deck::Config& config,
                                   const architecture::Architecture& architecture,
                                   const architecture::Shard& shard,
                                   const architecture::BucketCut& buckets, const Machine& machine) {
  ReductionScratch scratch;
  if (transport(config.parallel, machine) == schedule::Transport::independent_channels)
    return scratch;
  const TypedSizes sizes = typed_sizes(config, shard, machine);
  buckets.visit([&](const architecture::BucketRun& run) {
    Bytes& most = run.expert_ranks > 1 ? scratch.experts : scratch.data;
    most = std::max(most, bucket_scratch(config.parallel, run, sizes.accumulate));
  });
  if (config.precision.products == Products::fp8)  // maxima are gathered
    scratch.data = std::max<Bytes>(scratch.data, 4 * architecture::fp8_tensors(architecture) *
                                                     (config.parallel.replicas() - 1));
  if (const Bytes sums =
          architecture::factors(architecture, buckets.arrays(), config.optimizer).sum_bytes();
      sums > 0) {
    scratch.shared = device_reduction_scratch_bytes(sums, shard.tensor_size);
    if (config.parallel.divides_state())
      scratch.data = std::max(
          scratch.data,
          device_reduction_scratch_bytes(sums, static_cast<int>(config.parallel.shard_ranks())));
    else
      scratch.divided = device_reduction_scratch_bytes(sums, shard.expert_size);
  }
  // sums of squares of each array and tensor rank
  scratch.divided =
      std::max(scratch.divided,
               device_reduction_scratch_bytes(
                   std::ssize(architecture.arrays) * shard.tensor_size * 8, shard.expert_size));
  for (const auto& part : architecture::shared_parts(buckets.arrays(), buckets.placement())) {
    const Bytes bytes = part.run.extent * sizes.accumulate;
    scratch.pipeline =
        std::max(scratch.pipeline,
                 device_reduction_scratch_bytes(bytes, static_cast<int>(config.parallel.pipeline)));
    if (!part.split)
      scratch.shared =
          std::max(scratch.shared, device_reduction_scratch_bytes(bytes, shard.tensor_size));
  }
  if (config.model.predicts_masked_tokens())  // rows that the head picks
    scratch.context = device_reduction_scratch_bytes(sizes.head_rows * sizes.hidden * sizes.element,
                                                     static_cast<int>(config.parallel.context));
  if (config.parallel.shares_vocabulary()) {
    const auto ranks = static_cast<int>(config.parallel.pipeline);
    scratch.vocabulary = std::min(sizes.slice * sizes.hidden * sizes.element,
                                  device_reduction_segment_bytes(ranks)) *
                         (ranks - 1);
  }
  scratch.tensor = std::max(activation_scratch(config, sizes, machine), scratch.shared);
  const bool shares_table = config.model.tied_embeddings && config.parallel.pipeline > 1 &&
                            !shard.shares_vocabulary() &&
                            (shard.has_embedding() || shard.has_head());
  if (shares_table)
    for (const architecture::RankArray& array : buckets.arrays())
      if (!array.frozen &&
          architecture.arrays[static_cast<std::size_t>(array.number)].name == "embedding.token")
        scratch.embedding = device_reduction_scratch_bytes(array.elements() * sizes.accumulate, 2);
  return scratch;
}

}  // namespace trireme::plan
