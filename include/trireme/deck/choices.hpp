#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What errors offer instead of a value that does not fit.
namespace trireme::deck {

/// All divisors of n >= 1, ascending.
std::vector<std::int64_t> divisors(std::int64_t n);

/// "1, 2, 5 or 10": the candidates, or of many the six around `wanted`.
std::string choices(const std::vector<std::int64_t>& candidates, std::int64_t wanted);

}  // namespace trireme::deck
