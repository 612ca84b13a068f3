#pragma once

#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/stages.hpp>
#include <trireme/schedule/program.hpp>

#include <string>
#include <vector>

/// Tables of `trireme check`.
namespace trireme::commands {

/// Rows of cells with columns aligned, each line after `indent`; columns from `numbers` on are
/// aligned to the right.
std::string columns(const std::vector<std::vector<std::string>>& rows, int numbers,
                    const std::string& indent);

/// Stages with their layers, parameters and share of the FLOPs; notes where some have no layer.
std::string stages_report(const std::vector<plan::StageGroup>& groups,
                          const deck::ParallelConfig& parallel);

/// From which step and sample on the global batch has which size; of many the first and the last.
std::string ramp_report(const deck::BatchSchedule& batches,
                        const std::vector<schedule::Program>& programs);

/// Bytes of the ranks that need most and least, side by side if they differ; what background
/// checkpoints take on the host is below their sum. Whether the largest fits into the machine's
/// memory, if that is known.
std::string memory_report(const std::vector<plan::RankPlan>& ranks, int tensor_size,
                          const plan::Machine& machine);

/// The tensors and steps of a layer on the rank of this shard.
std::string layer_report(const deck::Config& config, const architecture::Architecture& architecture,
                         const architecture::Shard& shard, bool split_backward,
                         const plan::Machine& machine);

/// Messages and bytes per step and axis of the rank that sends most.
std::string traffic_report(const std::vector<plan::RankPlan>& ranks, int tensor_size);

}  // namespace trireme::commands
