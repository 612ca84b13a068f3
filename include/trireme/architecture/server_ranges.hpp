#pragma once

#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/buckets.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>

namespace trireme::architecture {

/// Key ranges of parameter servers (Li et al. 2014, "Scaling Distributed Machine Learning with the
/// Parameter Server"): server r holds part r of every bucket of the arrays of the worker ranks with
/// its tensor and pipeline coordinates. A single server holds whole arrays.
Division server_division(const deck::ParallelConfig& parallel);

/// Buckets with bounds for the servers, equal on workers and servers. Arguments as for BucketCut;
/// `size`: bytes of a gradient's element.
BucketCut server_cut(const deck::ParallelConfig& parallel, const Architecture& architecture,
                     const Shard& shard, const std::vector<LocalArray>& arrays,
                     const Placement& placement, std::int64_t size);

/// Bytes of the optimizer's status, which the first server sends with the weights.
inline constexpr Bytes server_status_bytes = 7 * 8;

/// Elements of the buffer for a worker's gradients, on the server with the largest range.
std::int64_t received_elements(const BucketCut& cut);
/// Number of gradient buffers on each server: a worker may be ahead of the updates.
std::int64_t received_gradients(const deck::ParallelConfig& parallel);

}  // namespace trireme::architecture
