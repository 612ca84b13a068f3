#pragma once

#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/buckets.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>

namespace trireme::architecture {

/// Division of arrays among parameter servers (Li et al. 2014, "Scaling Distributed Machine
/// Learning with the Parameter Server"): a rank of server r holds part r of every bucket of the
/// worker ranks that have the same tensor and pipeline coordinates. A single server holds whole
/// arrays.
Division server_division(const deck::ParallelConfig& parallel);

/// Buckets whose parts belong to the servers, equal on workers and servers. Arguments as for
/// BucketCut; `size`: bytes of an element of a gradient.
BucketCut server_cut(const deck::ParallelConfig& parallel, const Architecture& architecture,
                     const Shard& shard, const std::vector<RankArray>& arrays,
                     const Placement& placement, std::int64_t size);

/// Bytes of the optimizer's status, which the first server sends with the weights.
inline constexpr Bytes server_status_bytes = 7 * 8;

/// Elements of the buffer for one gradient of a worker, on the server with the largest key range.
std::int64_t received_elements(const BucketCut& cut);
/// Number of buffers for gradients on each server: [parallel] staleness + 1 for each worker,
/// because a worker may be ahead of the updates.
std::int64_t received_gradients(const deck::ParallelConfig& parallel);

}  // namespace trireme::architecture
