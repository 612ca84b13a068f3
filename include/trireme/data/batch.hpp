#pragma once

#include <trireme/base/check.hpp>

#include <cstdint>
#include <span>

namespace trireme::data {

/// Row i of an array [count, length]; empty if the array is empty.
inline std::span<std::int32_t> row(std::span<std::int32_t> array, std::int64_t i,
                                   std::int64_t length) {
  if (array.empty()) return array;
  return array.subspan(static_cast<std::size_t>(i * length), static_cast<std::size_t>(length));
}

/// Sizes that determine the micro-batches of a step.
struct Batch {
  std::int64_t global = 1;      ///< G: samples of a step
  std::int64_t micro = 1;       ///< b: samples of a micro-batch
  std::int64_t data_ranks = 1;  ///< R: data-parallel ranks
};

/// m = G / (b R): micro-batches of a step on each data rank. UsageError unless all sizes are at
/// least 1 and m is an integer.
inline std::int64_t micro_batches(const Batch& batch) {
  check_usage(batch.global >= 1 && batch.micro >= 1 && batch.data_ranks >= 1, "global batch ",
              batch.global, ", micro-batch ", batch.micro, ", data ranks ", batch.data_ranks,
              ": all must be at least 1");
  check_usage(batch.global % batch.micro == 0 && batch.global / batch.micro % batch.data_ranks == 0,
              "[batch] global = ", batch.global,
              " is not divisible by [batch] micro = ", batch.micro, " times ", batch.data_ranks,
              " data-parallel ranks");
  return batch.global / batch.micro / batch.data_ranks;
}

/// First of the b consecutive samples of micro-batch i = `micro` on data rank r = `data_rank`,
/// counted within the global batch: (i R + r) b.
inline std::int64_t first_sample(const Batch& batch, std::int64_t micro, std::int64_t data_rank) {
  check(
      micro >= 0 && micro < micro_batches(batch) && data_rank >= 0 && data_rank < batch.data_ranks,
      "no micro-batch ", micro, " on data rank ", data_rank, " in a global batch of ",
      batch.global);
  return (micro * batch.data_ranks + data_rank) * batch.micro;
}

}  // namespace trireme::data
