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

/// The rows as lines that begin with `indent`, in aligned columns. Columns from index `numbers` on
/// are aligned right, except the last column if `words_last`.
std::string columns(const std::vector<std::vector<std::string>>& rows, int numbers,
                    const std::string& indent, bool words_last = false);

/// Layers, parameters and shares of the FLOPs of the stages, one row per group, and remarks.
std::string stages_report(const std::vector<plan::StageGroup>& groups,
                          const deck::ParallelConfig& parallel);

/// The sizes of the global batch; of more than 12 sizes, the first 9 and the last 3.
std::string ramp_report(const deck::BatchSchedule& batches,
                        const std::vector<schedule::Program>& programs);

/// Largest sizes of local checkpoints: of one checkpoint per rank, and of all checkpoints per node.
std::string local_report(const std::vector<plan::RankPlan>& ranks, const deck::Config& config,
                         const plan::Machine& machine);

/// Memory of the rank with the most and of the rank with the least memory, and whether each rank
/// fits into the machine's memory, if the machine's memory is known.
std::string memory_report(const std::vector<plan::RankPlan>& ranks,
                          const deck::ParallelConfig& parallel, const plan::Machine& machine);

/// Tensors and operations of the embedding, of each kind of layer and of the head, on the rank of
/// `shard`.
std::string layer_report(const deck::Config& config, const architecture::Architecture& architecture,
                         const architecture::Shard& shard, bool split_backward,
                         const plan::Machine& machine);

/// Operations and bytes per step and axis, of the rank with the most bytes.
std::string traffic_report(const std::vector<plan::RankPlan>& ranks,
                           const deck::ParallelConfig& parallel);
/// Workers and ranks of local training, and the messages of the outer steps.
std::string workers_report(const deck::Config& config, const architecture::Architecture& a,
                           const std::vector<plan::RankPlan>& ranks, const plan::Machine& machine);

}  // namespace trireme::commands
