#pragma once

#include <trireme/checkpoint/manifest.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace trireme::train {

/// Steps whose update was left out since their loss or gradient was not finite, and the loss scale
/// that follows from them. The run's step and its position in the data went on; the optimizer's own
/// count, of AdamW's and LAMB's bias correction, is that of the updates.
struct Skips {
  std::int64_t total = 0;      ///< since the run's first step
  std::int64_t in_row = 0;     ///< of them, those behind the last update
  std::int64_t last_step = 0;  ///< the last of them that this process took; 0: none
  std::string array = {};      ///< the first whose gradient was not finite then; "": none alone
  std::optional<double> loss_scale = {};  ///< of the next step, with fp16
  std::int64_t scale_steps = 0;           ///< updates since it was changed or a step was skipped

  bool operator==(const Skips&) const = default;
};

/// What a checkpoint behind step `step` keeps of them, and back: all but last_step and array. A
/// checkpoint that says nothing had none, and no loss scale. Error if it contradicts itself.
std::map<std::string, std::string> to_values(const Skips& skips, std::int64_t step);
Skips skips_of(const checkpoint::RunState& state);

}  // namespace trireme::train
