#pragma once

#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/buckets.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>

namespace trireme::architecture {

/// Key ranges of parameter servers (Li et al. 2014, "Scaling Distributed Machine Learning with the
/// Parameter Server"): server r holds part r of every bucket of the arrays of the model ranks with
/// its tensor and pipeline coordinates. One server holds whole arrays.
Division server_division(const deck::ParallelConfig& parallel);

/// The buckets of these arrays, with bounds for the servers. Workers and servers have the same.
/// Arguments as of BucketCut; `size`: bytes of a gradient's element.
BucketCut server_cut(const deck::ParallelConfig& parallel, const Architecture& architecture,
                     const Shard& shard, const std::vector<LocalArray>& arrays,
                     const Placement& placement, std::int64_t size);

/// Bytes of the optimizer's status, which the first server sends with the weights.
inline constexpr Bytes server_status_bytes = 7 * 8;

/// Elements of the memory for a worker's gradients, on the server whose range is largest.
std::int64_t received_elements(const BucketCut& cut);
/// Number of these memories on each server: a worker may be ahead of the updates.
std::int64_t received_gradients(const deck::ParallelConfig& parallel);

}  // namespace trireme::architecture
