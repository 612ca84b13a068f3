#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/layout/split.hpp>

#include <cstdint>
#include <vector>

namespace trireme::plan {

/// A range of consecutive stages with equal numbers of layers, parameters and FLOPs.
struct StageGroup {
  Stage first = 0;
  Stage last = 0;
  layout::Slice layers;  ///< layers of all stages of the range
  std::int64_t layers_each = 0;
  std::int64_t parameters = 0;  ///< per stage, all tensor ranks together
  double flops = 0;             ///< per stage and token, all passes
  int count() const { return last - first + 1; }
};

/// Groups of all stages, in order. Parts of a shared vocabulary count in the stage of their rank.
/// The token table of tied embeddings counts only in the first stage.
std::vector<StageGroup> group_stages(const architecture::Architecture& architecture,
                                     const deck::ParallelConfig& parallel);

}  // namespace trireme::plan
