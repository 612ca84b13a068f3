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

/// Lines with aligned columns, each beginning with `indent`. Columns from number `numbers` on are
/// aligned right, except the last column if `words_last`.
std::string columns(const std::vector<std::vector<std::string>>& rows, int numbers,
                    const std::string& indent, bool words_last = false);

/// Stages with their layers, parameters and share of the FLOPs, and notes about them.
std::string stages_report(const std::vector<plan::StageGroup>& groups,
                          const deck::ParallelConfig& parallel);

/// The sizes of the global batch with their first step and sample; if there are many sizes, only
/// the first and last.
std::string ramp_report(const deck::BatchSchedule& batches,
                        const std::vector<schedule::Program>& programs);

/// Maximum number of bytes of local checkpoints per rank, and on the disk of a node.
std::string local_report(const std::vector<plan::RankPlan>& ranks, const deck::Config& config,
                         const plan::Machine& machine);

/// Bytes of the ranks with the most and the least memory, side by side if they differ, and whether
/// the largest rank fits into the machine's memory, if this memory is known.
std::string memory_report(const std::vector<plan::RankPlan>& ranks,
                          const deck::ParallelConfig& parallel, const plan::Machine& machine);

/// Tensors and operations of the embedding, of each kind of layer and of the head, on the rank of
/// `shard`.
std::string layer_report(const deck::Config& config, const architecture::Architecture& architecture,
                         const architecture::Shard& shard, bool split_backward,
                         const plan::Machine& machine);

/// Messages and bytes per step and axis of the rank with the most bytes.
std::string traffic_report(const std::vector<plan::RankPlan>& ranks,
                           const deck::ParallelConfig& parallel);
/// Ranks that train the workers of local training, and the messages of its outer steps.
std::string workers_report(const deck::Config& config, const architecture::Architecture& a,
                           const std::vector<plan::RankPlan>& ranks, const plan::Machine& machine);

}  // namespace trireme::commands
