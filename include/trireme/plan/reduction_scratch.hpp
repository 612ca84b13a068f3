#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/buckets.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <vector>

namespace trireme::plan {

/// Bytes of a device's buffer for sums of activations over the tensor axis; 0 if messages use MPI.
Bytes activation_scratch(const deck::Config& config, const TypedSizes& sizes,
                         const Machine& machine);

/// Bytes of the device buffers that receive other ranks' parts of sums, by communicator. 0 if
/// messages use MPI.
struct ReductionScratch {
  Bytes data = 0;
  Bytes experts = 0;  ///< ranks with the same experts
  Bytes divided = 0;  ///< replicas that divide the experts
  Bytes tensor = 0;
  Bytes shared = 0;  ///< the part of `tensor` that shared layers need
  Bytes embedding = 0;
  Bytes context = 0;  ///< rows that the head of masked tokens picks
  Bytes pipeline = 0;
  Bytes vocabulary = 0;  ///< for each sum of look-ups or of output gradients
};
ReductionScratch reduction_scratch(const deck::Config& config,
                                   const architecture::Architecture& architecture,
                                   const architecture::Shard& shard,
                                   const architecture::BucketCut& buckets, const Machine& machine);

}  // namespace trireme::plan
