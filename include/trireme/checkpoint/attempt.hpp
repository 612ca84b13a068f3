#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

/// A start of the run that writes to a checkpoint directory. The file `attempt` of the directory names
/// the last one.
struct Attempt {
  std::string run;          ///< 16 hexadecimal digits, chosen at random
  std::int64_t number = 0;  ///< grows with each start
  bool operator==(const Attempt&) const = default;
};

/// The file `attempt` of a checkpoint directory. No value without one; Error if it is damaged.
std::optional<Attempt> read_attempt(const std::string& directory);

/// Begins the next attempt of the run of that file; a new run if there is no such file, or if it is
/// damaged. The number grows by a random amount, so that two copies of a directory that continue
/// differ.
Attempt begin_attempt(const std::string& directory);

/// A whole number of at least 0 without leading zeros; no value for any other text.
std::optional<std::int64_t> parse_count(std::string_view digits);

}  // namespace trireme::checkpoint
