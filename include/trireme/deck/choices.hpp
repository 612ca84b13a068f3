#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Valid values that an error message suggests in place of an invalid value.
namespace trireme::deck {

/// All divisors of n >= 1, ascending.
std::vector<std::int64_t> divisors(std::int64_t n);

/// "1, 2, 5 or 10": at most six of the ascending `candidates`, around `wanted`.
std::string choices(const std::vector<std::int64_t>& candidates, std::int64_t wanted);

}  // namespace trireme::deck
