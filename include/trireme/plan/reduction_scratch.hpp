#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/buckets.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

#include <vector>

namespace trireme::plan {

/// Device buffers that receive the other ranks' parts of each communicator's sums: of gradient
/// buckets, activations, the tied token table and shared layers. Zero if messages use MPI. Smaller
/// sums are not counted: norms, the statistics of the softmax, gradients of shared heads.
struct ReductionScratch {
  Bytes data = 0;
  Bytes tensor = 0;
  Bytes embedding = 0;
  Bytes pipeline = 0;
  Bytes total() const { return data + tensor + embedding + pipeline; }
};
ReductionScratch reduction_scratch(const deck::Config& config,
                                   const architecture::Architecture& architecture,
                                   const architecture::Shard& shard,
                                   const std::vector<architecture::Bucket>& buckets,
                                   const Machine& machine);

}  // namespace trireme::plan
