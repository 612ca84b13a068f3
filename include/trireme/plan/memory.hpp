#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/layer_program.hpp>
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
  bool on_host = false;  ///< offloaded from a device
};

/// Device memory for hashes that the host has not read yet, on a rank that audits its steps.
inline constexpr Bytes audit_bytes = 4096 * 8;

/// Most steps between two logged steps, because their losses and norms wait in device memory.
inline constexpr std::int64_t longest_history = 4096;
/// Steps whose losses and norms fit into device memory: two more than between logged steps, because
/// overlapping steps are read while the next one runs.
std::int64_t history_steps(const deck::RunConfig& run);
/// Device memory for these losses and norms; `terms`: losses of a step.
Bytes history_bytes(const deck::RunConfig& run, std::int64_t terms);

/// The programs of a training rank's layers, by kind of layer.
std::vector<architecture::LayerProgram> layer_programs(
    const deck::Config& config, const architecture::Architecture& architecture,
    const architecture::Shard& shard, bool split_backward, const Machine& machine);

/// Bytes that a training rank allocates, arena by arena. A slot of saved activations is as large as
/// the largest of the rank's stages needs. Between stages, every tensor rank sends and receives its
/// part of the tokens.
std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard,
                                       const schedule::Needs& needs, const Machine& machine);

/// Arenas of a rank, which do not depend on the micro-batch.
ArenaParts arena_parts(const deck::Config& config, const architecture::Architecture& architecture,
                       const architecture::Shard& shard, const Machine& machine);

/// Rows of training_memory().
std::vector<MemoryRow> rows_of(const TrainingBytes& bytes);

/// Saved activations and scratch in the kernels' memory: the part that recomputation changes.
Bytes activation_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                       const architecture::Shard& shard, const schedule::Needs& needs,
                       const Machine& machine);

/// Bytes of a rank's share of a checkpoint, on the replica that writes the most.
Bytes share_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                  const architecture::Shard& shard, const Machine& machine);

/// Whether shared checkpoints are written from a copy in host memory.
bool saves_in_background(const deck::Config& config);

/// Shares of local checkpoints that a rank has in host memory, and per checkpoint on its node's
/// disk: its own share and a partner's.
inline constexpr int local_shares = 2;
/// Local checkpoints on a disk while one is written: two complete checkpoints and the new one.
inline constexpr int local_checkpoints = 3;

/// Copies of shares in a rank's host memory, from which it writes background and local checkpoints.
int checkpoint_copies(const deck::Config& config);
/// Bytes of the checkpoint copies.
Bytes checkpoint_copy_bytes(const deck::Config& config,
                            const architecture::Architecture& architecture,
                            const architecture::Shard& shard, const Machine& machine);

/// Host memory for the gradients that other replicas send, if all buckets are in flight at the same
/// time.
Bytes reduction_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                      const architecture::Shard& shard, const Machine& machine);

/// Resident host memory of a rank's process besides the arrays above: code, libraries, their and
/// MPI's allocations, and the watchdog's page tables. Measured on one machine, not computed;
/// docs/performance.md compares it with runs.
Bytes process_bytes(const deck::Config& config);

Bytes total(const std::vector<MemoryRow>& rows);
/// Bytes in the kernels' memory.
Bytes device_total(const std::vector<MemoryRow>& rows);

/// The rows as an aligned table with the sum of the kernels' memory, followed by offloaded arrays
/// and the host memory of background checkpoints, if any.
std::string table(const std::vector<MemoryRow>& rows, Bytes checkpoint_copy);

}  // namespace trireme::plan
