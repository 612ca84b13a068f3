#pragma once

/// Values that errors suggest instead of one that does not fit.
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::deck {

/// All divisors of n >= 1, ascending.
std::vector<std::int64_t> divisors(std::int64_t n);

/// "1, 2, 5 or 10": the candidates, or the six around `wanted` if there are more.
std::string choices(const std::vector<std::int64_t>& candidates, std::int64_t wanted);

}  // namespace trireme::deck
