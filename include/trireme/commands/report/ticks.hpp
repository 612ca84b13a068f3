#pragma once

#include <string>
#include <vector>

namespace trireme::commands {

struct Tick {
  double at = 0;
  std::string label;
};

/// An axis from `low` to `high`, both finite, low < high.
struct Ticks {
  double low = 0;
  double high = 1;
  std::vector<Tick> ticks;  ///< ascending, within [low, high]
};

/// Multiples of 1, 2 or 5 times a power of ten, about `most` of them. The axis is extended to the
/// outer ticks. A range of a single value is widened first.
Ticks round_ticks(double low, double high, int most);
/// Ticks for an axis of steps: whole numbers, and the axis is not extended.
Ticks step_ticks(double low, double high, int most);
/// Ticks of a logarithmic axis, for a range above 0: powers of ten; up to 2.5 decades also 2 and 5
/// times the powers; below 0.7 decades the ticks of round_ticks().
Ticks log_ticks(double low, double high, int most);

/// A number with at most `digits` significant digits, or as an integer from 10^(digits − 1) to
/// 1e15: "12,345", "0.01235", "1.235e-5". "not finite" for infinity and NaN.
std::string short_number(double value, int digits = 4);

}  // namespace trireme::commands
