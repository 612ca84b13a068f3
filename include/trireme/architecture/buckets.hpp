#pragma once

#include <trireme/architecture/placement.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// A run of gradient elements that is summed over the data axis by one message.
struct Bucket {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Stage stage = 0;
  /// Those that have elements in it, −1: the embedding, L: the head. Complete when all of them have
  /// been passed backward.
  std::vector<std::int64_t> layers;
};

/// Buckets of at most `most_elements`, cut by position alone, within one stage and within the
/// arrays that the tensor axis cuts or does not: so every rank of the data axis cuts alike, and
/// replicated arrays are cut alike on all tensor ranks. From each run's end backward, as backward
/// passes complete them.
std::vector<Bucket> gradient_buckets(const Architecture& architecture, const Shard& shard,
                                     const std::vector<LocalArray>& arrays,
                                     const Placement& placement, std::int64_t most_elements);

}  // namespace trireme::architecture
