#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/layer_program.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/needs.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

struct MemoryRow {
  std::string what;
  Bytes bytes = 0;
  bool on_host = false;  ///< what a device has offloaded
};

/// The program of each layer of a training rank.
architecture::LayerProgram layer_program(const deck::Config& config,
                                         const architecture::Architecture& architecture,
                                         const architecture::Shard& shard, bool split_backward,
                                         const Machine& machine);

/// Bytes that a training rank allocates, arena by arena. A slot of saved activations is as large as
/// the largest of the rank's stages needs it; every tensor rank sends and receives its part of the
/// tokens of what goes between stages.
std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard,
                                       const schedule::Needs& needs, const Machine& machine);

/// Of these, saved activations and scratch where the kernels run: what recomputation changes.
Bytes activation_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                       const architecture::Shard& shard, const schedule::Needs& needs,
                       const Machine& machine);

/// Host memory for the copy from which a rank of this shard writes checkpoints in the background:
/// its share of the arrays, of the replica that writes most. 0 where nothing is written while
/// training goes on.
Bytes checkpoint_copy_bytes(const deck::Config& config,
                            const architecture::Architecture& architecture,
                            const architecture::Shard& shard, const Machine& machine);

/// Host memory for what other replicas send of the gradients, if all buckets are under way
/// together.
Bytes reduction_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                      const architecture::Shard& shard, const Machine& machine);

/// Host memory that a rank's process has resident beside the arrays above: code and libraries, what
/// they and MPI allocate, and the watchdog's reserve. Measured on one machine, not computed:
/// docs/performance.md holds it against runs.
Bytes process_bytes(const deck::Config& config);

Bytes total(const std::vector<MemoryRow>& rows);
/// Bytes where the kernels run.
Bytes device_total(const std::vector<MemoryRow>& rows);

/// The rows as an aligned table with the sum of those that lie where the kernels run; below it what
/// is offloaded, and the host memory of background checkpoints, if there is any.
std::string table(const std::vector<MemoryRow>& rows, Bytes checkpoint_copy);

}  // namespace trireme::plan
