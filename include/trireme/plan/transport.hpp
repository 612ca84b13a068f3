#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/buckets.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/schedule/program.hpp>

#include <string>

namespace trireme::plan {

/// Whether this installation was built with NCCL, or RCCL.
bool has_nccl();

/// Whether kernels run on devices whose messages can only go by MPI.
bool lacks_nccl();

/// Throws a UsageError where the deck asks for what this installation lacks.
void expect_transport(const deck::Deck& deck, bool lacks_nccl = plan::lacks_nccl());

/// Whether messages between ranks go by NCCL, by the deck and this installation alone: every rank
/// and `check` on a login node find the same.
bool uses_nccl(const deck::ParallelConfig& parallel);

/// How transfers between pipeline stages queue, for which programs are lowered.
schedule::Transport transport(const deck::ParallelConfig& parallel);

/// In words, for `check` and the log; empty where kernels run on the host and the deck asks for
/// nothing.
std::string transport_note(const deck::ParallelConfig& parallel);

/// Buffers of the device in which the sums of each communicator meet the other ranks' parts: for
/// buckets of gradients, for activations, for the tied token table. Zero without a transport. What
/// is smaller is not counted: norms, the statistics of the softmax, gradients of shared heads.
struct ReductionScratch {
  Bytes data = 0;
  Bytes tensor = 0;
  Bytes embedding = 0;
  Bytes total() const { return data + tensor + embedding; }
};
ReductionScratch reduction_scratch(const deck::Config& config,
                                   const architecture::Architecture& architecture,
                                   const architecture::Shard& shard,
                                   const std::vector<architecture::Bucket>& buckets);

}  // namespace trireme::plan
