#pragma once

#include <trireme/checkpoint/manifest.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace trireme::train {

/// Steps whose update was skipped because their loss or gradient was not finite, and the resulting
/// loss scale. Skipped steps advance the run's step and its position in the data, but not the
/// optimizer's count of updates.
struct Skips {
  std::int64_t total = 0;      ///< number of steps skipped since the run's first step
  std::int64_t in_row = 0;     ///< number of steps skipped since the last update
  std::int64_t last_step = 0;  ///< last step skipped since the start or restart; 0: none
  std::string array = {};      ///< first array of last_step whose gradient was not finite; "": none
  std::optional<double> loss_scale = {};  ///< loss scale of the next step, with fp16 only
  std::int64_t scale_steps = 0;  ///< updates since the loss scale changed or a step was skipped
  std::optional<double> scale_before = {};  ///< loss scale before the last update, if steps overlap

  bool operator==(const Skips&) const = default;
};

/// Converts to and from attributes of a checkpoint, without last_step and array. A checkpoint
/// without these attributes has no skipped step and no loss scale. Error if an attribute is invalid
/// or attributes contradict each other.
std::map<std::string, std::string> to_values(const Skips& skips, std::int64_t step);
Skips skips_of(const checkpoint::RunState& state);

}  // namespace trireme::train
