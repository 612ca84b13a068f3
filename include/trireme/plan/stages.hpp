#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/layout/split.hpp>

#include <cstdint>
#include <vector>

namespace trireme::plan {

/// A range of consecutive equal stages.
struct StageGroup {
  Stage first = 0;
  Stage last = 0;
  layout::Slice layers;  ///< layers of all stages of the range
  std::int64_t layers_each = 0;
  std::int64_t parameters = 0;  ///< per stage, all tensor ranks together
  double flops = 0;             ///< per stage and token, all passes
  int count() const { return last - first + 1; }
};

/// All stages in order. Parts of a shared vocabulary count in the stage of their rank. The token
/// table of tied embeddings counts in the first stage only, so that all stages' parameters sum to
/// the model's.
std::vector<StageGroup> group_stages(const architecture::Architecture& architecture,
                                     const deck::ParallelConfig& parallel);

}  // namespace trireme::plan
