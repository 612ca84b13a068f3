#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/layer_program.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

/// Messages of one rank in one step. Bytes are buffer sizes, not the bytes that an algorithm moves:
/// all elements of an all-reduce, the whole of an all-gather or reduce-scatter, the payload of a
/// send. A receive is counted at its sender.
struct TrafficRow {
  /// "tensor", "context", "pipeline"; "vocabulary": all pipeline ranks, which share it; "shared":
  /// tensor ranks with the same heads of keys and values; "data", or with a context axis
  /// "replicas"; "tied": first and last stage; "model".
  std::string axis;
  std::string what;  ///< "layers forward: all-reduce"
  std::int64_t operations = 0;
  Bytes bytes = 0;
  bool operator==(const TrafficRow&) const = default;
};

/// Messages of the rank that holds `shard` in one optimizer step; groups of one rank have none.
/// `split_backward`: each half of the backward pass recomputes the layers with recompute = full.
/// In the order tensor, context, vocabulary, pipeline, shared, data, tied, model:
///   tensor    two all-reduces of [T, D] per layer and pass (Shoeybi et al. 2019, arXiv
///             1909.08053); with sequence_parallel all-gathers and reduce-scatters instead
///             (Korthikanti et al. 2022, arXiv 2205.05198).
///   context   keys and values of attention go around the ring of context ranks, in the backward
///             pass with their gradients (Liu et al. 2023, arXiv 2310.01889).
///   pipeline  each tensor rank sends its 1/t of [T, D] to the next stage, where the receivers
///             gather (Narayanan et al. 2021, arXiv 2104.04473, section 4.1).
///   vocabulary  if it is shared: look-ups, the last stage's output, statistics and gradients; a
///             broadcast and a sum count as one part (Yeung et al. 2024, arXiv 2411.05288).
///   shared    gradients of the heads of keys and values that neighbouring tensor ranks share.
///   data      every gradient once, in buckets, with a context axis among all ranks with the same
///             weights; with `shard` reduce-scatters, all-gathers of the weights, and the norm's
///             blocks (Rajbhandari et al. 2020, arXiv 1910.02054).
///   tied      the token table's gradient, between its first and its last stage.
///   model     squares of the gradient's norm.
std::vector<TrafficRow> step_traffic(const deck::Config& config,
                                     const architecture::Architecture& architecture,
                                     const architecture::Shard& shard, bool split_backward,
                                     const Machine& machine);

/// Sums of the rows per axis; `what` is empty.
std::vector<TrafficRow> per_axis(const std::vector<TrafficRow>& rows);

Bytes total(const std::vector<TrafficRow>& rows);

/// Number of gathers of each unit of a rank's weights in a step, from its row of the program: one
/// before each pass that reads the unit, unless its window still holds it. `layer`: program of a
/// layer. Empty if no weights are gathered into windows.
std::vector<std::int64_t> unit_gathers(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard,
                                       const architecture::Arrangement& weights,
                                       std::span<const architecture::LayerProgram> programs,
                                       const Machine& machine);

}  // namespace trireme::plan
