#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

/// What one rank hands to its communicators in one step. Bytes are those of the buffers, not of
/// what an algorithm moves: all elements of an all-reduce, the whole of an all-gather and of a
/// reduce-scatter, the payload of a send; a receive is counted where it is sent.
struct TrafficRow {
  /// "tensor", "pipeline"; "shared": tensor ranks with the same heads of keys and values; "data";
  /// "tied": first and last stage; "model"
  std::string axis;
  std::string what;  ///< "layers forward: all-reduce"
  std::int64_t operations = 0;
  Bytes bytes = 0;
  bool operator==(const TrafficRow&) const = default;
};

/// Of the rank that holds `shard`, for one optimizer step; nothing where a group has one rank.
/// `split_backward`: the program's backward passes come in halves, each of which computes the
/// layers again with recompute = full. In the order tensor, pipeline, shared, data, tied, model.
///   tensor    Shoeybi et al. 2019 (arXiv 1909.08053): two all-reduces of [T, D] per layer and
///   pass;
///             with sequence_parallel Korthikanti et al. 2022 (arXiv 2205.05198): all-gathers and
///             reduce-scatters in their place.
///   pipeline  Narayanan et al. 2021 (arXiv 2104.04473), section 4.1: each tensor rank sends its
///   1/t
///             of [T, D] to the next stage, and the receiver gathers.
///   shared    gradients of the heads of keys and values that neighbouring tensor ranks hold.
///   data      every gradient once, in buckets; with distributed_optimizer Rajbhandari et al. 2020
///             (arXiv 1910.02054): reduce-scatters, all-gathers of the weights, and the norm's
///             blocks.
///   tied      the token table's gradient, between its first and its last stage.
///   model     squares of the gradient's norm.
std::vector<TrafficRow> step_traffic(const deck::Config& config,
                                     const architecture::Architecture& architecture,
                                     const architecture::Shard& shard, bool split_backward,
                                     const Machine& machine);

/// Sums per axis; `what` is empty.
std::vector<TrafficRow> per_axis(const std::vector<TrafficRow>& rows);

Bytes total(const std::vector<TrafficRow>& rows);

}  // namespace trireme::plan
