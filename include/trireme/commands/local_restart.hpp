#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/grid/runtime.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <trireme/checkpoint/manifest.hpp>

namespace trireme::commands {

/// Copies the newest whole local checkpoint of the run into its checkpoint directory, if its step
/// is after `after` and before `before`. All nodes copy the shards that they hold. A warning names
/// each newer one that is passed over, with the reason. `refusal`, called on rank 0, says why one
/// is not used. Returns the step; nothing if there is none. Collective.
std::optional<std::int64_t> collect_local_checkpoint(
    grid::Runtime& runtime, const deck::CheckpointConfig& config, std::int64_t after,
    std::int64_t before, const std::function<std::string(const checkpoint::Manifest&)>& refusal);

}  // namespace trireme::commands
