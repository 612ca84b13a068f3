#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

struct MemoryRow {
  std::string what;
  Bytes bytes = 0;
};

/// What a rank's row of the program keeps at the same time.
struct RankNeeds {
  int slots = 1;                 ///< saved forward passes
  int transfer_buffers = 0;      ///< outputs and gradients on their way to or from other stages
  bool splits_backward = false;  ///< gradients of weights come later than those of inputs
  auto operator<=>(const RankNeeds&) const = default;
};

/// Bytes that a training rank allocates, arena by arena. A slot of saved activations is as large as
/// the largest of the rank's stages needs it.
std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard, const RankNeeds& needs);

/// The same for a rank that holds the whole model.
std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture, int slots);

Bytes total(const std::vector<MemoryRow>& rows);

/// The rows as an aligned table with their sum.
std::string table(const std::vector<MemoryRow>& rows);

}  // namespace trireme::plan
