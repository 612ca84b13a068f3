#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/block_program.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/memory_parts.hpp>
#include <trireme/schedule/needs.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

struct MemoryRow {
  std::string what;
  Bytes bytes = 0;
  bool on_host = false;  ///< offloaded from a device to host memory
};

/// Device memory for hashes of a rank that audits its steps, until the host reads them.
inline constexpr Bytes audit_bytes = 4096 * 8;

/// Largest number of steps between two copies of losses and norms from device memory.
inline constexpr std::int64_t longest_history = 4096;
/// Number of steps whose losses and norms fit into device memory: two more than the host reads at a
/// time, because overlapping steps are read while the next step runs.
std::int64_t history_steps(const deck::RunConfig& run);
/// Device memory for the losses and norms of history_steps() steps. `terms`: number of losses of a
/// step.
Bytes history_bytes(const deck::RunConfig& run, std::int64_t terms);

/// The lowered programs of a training rank's layers, by kind of layer.
std::vector<architecture::BlockProgram> layer_programs(
    const deck::Config& config, const architecture::Architecture& architecture,
    const architecture::Shard& shard, bool split_backward, const Machine& machine);

/// Bytes that a training rank allocates, arena by arena.
std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard,
                                       const schedule::Needs& needs, const Machine& machine);

/// Sizes of a rank's arenas and of other buffers.
ArenaSizes arena_parts(const deck::Config& config, const architecture::Architecture& architecture,
                       const architecture::Shard& shard, const Machine& machine);

/// The rows that training_memory() returns.
std::vector<MemoryRow> rows_of(const TrainingBytes& bytes);

/// Saved activations and scratch in the kernels' memory: the part that recomputation changes.
Bytes activation_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                       const architecture::Shard& shard, const schedule::Needs& needs,
                       const Machine& machine);

/// Bytes of a rank's share of a checkpoint, on the replica that writes the most; 0 with parameter
/// servers.
Bytes share_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                  const architecture::Shard& shard, const Machine& machine);

/// Whether checkpoints in the shared directory are written from a copy in host memory.
bool saves_in_background(const deck::Config& config);

/// Number of shares of a local checkpoint that a rank keeps: its own, and one of a rank of another
/// node.
inline constexpr int local_shares = 2;
/// Local checkpoints on a disk while one is written: two complete checkpoints and the new one.
inline constexpr int local_checkpoints = 3;

/// Number of copies of shares in a rank's host memory for background and local checkpoints.
int checkpoint_copies(const deck::Config& config);
/// Bytes of the checkpoint copies in a rank's host memory.
Bytes checkpoint_copy_bytes(const deck::Config& config,
                            const architecture::Architecture& architecture,
                            const architecture::Shard& shard, const Machine& machine);

/// Host memory for the gradients that other replicas send. 0 with NCCL, with parameter servers or
/// with one replica.
Bytes reduction_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                      const architecture::Shard& shard, const Machine& machine);

/// Resident host memory of a rank's process besides its arrays, from constants measured on one
/// machine; docs/performance.md compares it with runs.
Bytes process_bytes(const deck::Config& config);

Bytes total(const std::vector<MemoryRow>& rows);
/// Bytes of the rows in the memory where kernels run.
Bytes device_total(const std::vector<MemoryRow>& rows);

/// The rows as an aligned table with the sum of the kernels' memory, followed by offloaded arrays
/// and the host memory of checkpoint copies, if any.
std::string table(const std::vector<MemoryRow>& rows, Bytes checkpoint_copy);

}  // namespace trireme::plan
