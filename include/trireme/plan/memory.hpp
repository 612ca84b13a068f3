#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

struct MemoryRow {
  std::string what;
  Bytes bytes = 0;
};

/// Bytes that a training rank allocates, arena by arena; `slots` micro-batches are kept at the same
/// time. The numbers are those of the arenas themselves: a test holds them equal.
std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture, int slots);

Bytes total(const std::vector<MemoryRow>& rows);

/// The rows as an aligned table with their sum.
std::string table(const std::vector<MemoryRow>& rows);

}  // namespace trireme::plan
