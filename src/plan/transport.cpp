#include <trireme/base/check.hpp>
#include <trireme/base/reduction.hpp>
#include <trireme/plan/local_sizes.hpp>
#include <trireme/plan/offload.hpp>
#include <trireme/plan/transport.hpp>

#include <algorithm>

namespace trireme::plan {

bool has_nccl() {
#ifdef TRIREME_HAS_NCCL
  return true;
#else
  return false;
#endif
}

bool lacks_nccl() {
  return has_device() && !has_nccl();
}

bool uses_nccl(const deck::ParallelConfig& parallel) {
  switch (parallel.transport) {
    case TransportKind::automatic:
      return has_nccl() && !parallel.share_devices;
    case TransportKind::mpi:
      return false;
    case TransportKind::nccl:
      return has_device();
  }
  return false;
}

void expect_transport(const deck::Deck& deck, bool lacks_nccl) {
  check_usage(!lacks_nccl || deck.config.parallel.transport != TransportKind::nccl,
              deck.cite("parallel", "transport"),
              " is not possible: this installation was built without NCCL; choose transport = "
              "\"mpi\", or configure with -DTRIREME_NCCL=ON");
}

schedule::Transport transport(const deck::ParallelConfig& parallel) {
  return uses_nccl(parallel) || parallel.imitated_transport
             ? schedule::Transport::ordered_groups
             : schedule::Transport::independent_channels;
}

std::string transport_note(const deck::ParallelConfig& parallel) {
  if (!has_device())
    return parallel.transport == TransportKind::nccl
               ? "nccl, which has no effect: this installation's kernels run on the host, whose "
                 "messages go by MPI"
               : "";
  if (uses_nccl(parallel)) return "NCCL, between devices";
  return "MPI, through the hosts' memory";
}

namespace {

/// The distributed optimizer's cuts decide what each rank sums.
Bytes bucket_scratch(const deck::ParallelConfig& parallel, const architecture::Bucket& bucket,
                     Bytes size) {
  const auto ranks = static_cast<int>(parallel.data);
  if (!parallel.distributed_optimizer)
    return device_reduction_scratch_bytes((bucket.end - bucket.begin) * size, ranks);
  std::int64_t longest = 0;
  for (std::size_t r = 0; r + 1 < bucket.bounds.size(); ++r)
    longest = std::max(longest, bucket.bounds[r + 1] - bucket.bounds[r]);
  return std::min(longest * size, device_reduction_segment_bytes(ranks)) * (ranks - 1);
}

}  // namespace

ReductionScratch reduction_scratch(const deck::Config& config,
                                   const architecture::Architecture& architecture,
                                   const architecture::Shard& shard,
                                   const std::vector<architecture::Bucket>& buckets) {
  ReductionScratch scratch;
  if (transport(config.parallel) == schedule::Transport::independent_channels) return scratch;
  const LocalSizes sizes = local_sizes(config, shard);
  for (const architecture::Bucket& bucket : buckets)
    scratch.data =
        std::max(scratch.data, bucket_scratch(config.parallel, bucket, sizes.accumulate));
  scratch.tensor = device_reduction_scratch_bytes(sizes.tokens * sizes.hidden * sizes.element,
                                                  shard.tensor_size);
  const bool shares_table = config.model.tied_embeddings && config.parallel.pipeline > 1 &&
                            (shard.has_embedding() || shard.has_head());
  if (shares_table)
    for (const architecture::LocalArray& array : architecture::local_arrays(architecture, shard))
      if (architecture.arrays[static_cast<std::size_t>(array.number)].name == "embedding.token")
        scratch.embedding = device_reduction_scratch_bytes(array.elements() * sizes.accumulate, 2);
  return scratch;
}

}  // namespace trireme::plan
