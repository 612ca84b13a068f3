#pragma once

#include <trireme/architecture/shard.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>

namespace trireme::plan {

/// Dimensions of one rank's part of a micro-batch, and the bytes of its numbers.
struct LocalSizes {
  std::int64_t micro = 0;         ///< B, samples
  std::int64_t sequence = 0;      ///< S
  std::int64_t tokens = 0;        ///< T = B·S: matrix products see all of them
  std::int64_t rows = 0;          ///< of them in this rank's residual stream: T, or its part of T
  std::int64_t slice = 0;         ///< tokens that this rank sends to another stage
  std::int64_t hidden = 0;        ///< D
  std::int64_t heads = 0;         ///< of this rank
  std::int64_t head_size = 0;     ///< K
  std::int64_t feed_forward = 0;  ///< of this rank
  std::int64_t vocabulary = 0;    ///< of this rank
  std::int64_t logit_block = 0;   ///< rows of logits computed at a time
  Bytes element = 0;              ///< of weights and activations
  Bytes accumulate = 0;           ///< of sums, gradients and optimizer state
  bool cuts_tokens = false;       ///< sequence parallelism on more than one tensor rank
};

LocalSizes local_sizes(const deck::Config& config, const architecture::Shard& shard);

}  // namespace trireme::plan
