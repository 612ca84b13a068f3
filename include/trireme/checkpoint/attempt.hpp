#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

/// An attempt: a start of the run that writes to a checkpoint directory. The directory's file
/// `attempt` names the last attempt.
struct Attempt {
  std::string run;          ///< 16 hexadecimal digits, chosen at random
  std::int64_t number = 0;  ///< grows with each start
  bool operator==(const Attempt&) const = default;
};

/// The file `attempt` of a checkpoint directory. std::nullopt if it does not exist; Error if it is
/// damaged.
std::optional<Attempt> read_attempt(const std::string& directory);

/// Begins the next attempt of the run in that file; a new run if the file does not exist or is
/// damaged. The number grows by a random amount, so that two continued copies of a directory
/// differ.
Attempt begin_attempt(const std::string& directory);

/// A whole number of at least 0 without leading zeros; std::nullopt for any other text.
std::optional<std::int64_t> parse_count(std::string_view digits);

}  // namespace trireme::checkpoint
