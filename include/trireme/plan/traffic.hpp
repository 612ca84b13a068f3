#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/block_program.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

/// Messages of one kind that a rank sends in a step. Bytes are buffer sizes, not the bytes that an
/// algorithm moves: all elements of an all-reduce, the whole buffer of an all-gather or
/// reduce-scatter, the payload of a send. A receive is counted at the sending rank.
struct TrafficRow {
  /// "tensor", "context", "pipeline"; "vocabulary": all pipeline ranks, which share it; "shared":
  /// tensor ranks with the same heads of keys and values; "data", or with a context axis
  /// "replicas"; "shard group": replicas that divide state, if fewer than all; "experts": replicas
  /// that divide the experts; "same experts" and "shard group of experts": the ranks of data and
  /// shard group with the same experts; "tied": first and last stage; "model": ranks that hold the
  /// weights once; "servers"; "workers".
  std::string axis;
  std::string what;  ///< "layers forward: all-reduce"
  std::int64_t operations = 0;
  Bytes bytes = 0;
  bool operator==(const TrafficRow&) const = default;
};

/// Messages of the rank that holds `shard` in one optimizer step; a group of one rank has none.
/// With parameter servers, the row "servers" replaces data, tied and model. Axes, in order:
///   tensor    two all-reduces of [T, D] per layer and pass (Shoeybi et al. 2019, arXiv
///             1909.08053); with sequence_parallel all-gathers and reduce-scatters instead
///             (Korthikanti et al. 2022, arXiv 2205.05198).
///   context   keys and values of attention, and their gradients, go around the ring of context
///             ranks (Liu et al. 2023, arXiv 2310.01889).
///   pipeline  each tensor rank sends its 1/t of [T, D] to the next stage, where the receivers
///             gather the whole (Narayanan et al. 2021, arXiv 2104.04473, section 4.1); gradients
///             of shared layers.
///   vocabulary  if it is shared: look-ups, the last stage's output, statistics and gradients
///             (Yeung et al. 2024, arXiv 2411.05288).
///   experts   copies of tokens for experts of other replicas, and their results; at most these,
///             because the choices of tokens are not known. Sums of squares of gradients.
///   shared    gradients of the heads of keys and values that neighbouring tensor ranks share.
///   data      gradients in buckets; with `shard` also weights and the norm's blocks
///             (Rajbhandari et al. 2020, arXiv 1910.02054).
///   tied      the token table's gradient, between the first and the last stage.
///   model     sums of squares for the gradient's norm.
std::vector<TrafficRow> step_traffic(const deck::Config& config,
                                     const architecture::Architecture& architecture,
                                     const architecture::Shard& shard, bool split_backward,
                                     const Machine& machine);

/// One row for each axis, with the sums of its rows and an empty `what`. The rows of an axis must
/// be consecutive.
std::vector<TrafficRow> per_axis(const std::vector<TrafficRow>& rows);

Bytes total(const std::vector<TrafficRow>& rows);

/// Number of gathers of each unit of a rank's weights in a step: one before each pass that reads
/// the unit, unless its window still holds the unit. `programs`: programs of the layers, by kind of
/// layer. Empty if no weights are gathered into windows.
std::vector<std::int64_t> unit_gathers(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard,
                                       const architecture::Arrangement& weights,
                                       std::span<const architecture::BlockProgram> programs,
                                       const Machine& machine);

}  // namespace trireme::plan
