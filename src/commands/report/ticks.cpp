// Ticks and labels of a chart's axes.
#include <trireme/commands/report/ticks.hpp>

#include <trireme/base/text.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace trireme::commands {
namespace {

constexpr double most_plain = 1e15;  // a double holds all integers up to this value

/// The smallest of 1, 2 and 5 times a power of ten that is at least `least`.
double round_up(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

/// Number of decimals needed to distinguish multiples of `step`.
int places(double step) {
  return std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
}

/// Exponential form: "5e-4", not "5.0e-04".
std::string scientific(double value, int digits) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.*e", digits, value);
  const std::string all = buffer;
  const auto at = all.find('e');
  std::string mantissa = all.substr(0, at);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.ends_with('.')) mantissa.pop_back();
  }
  return text(mantissa, "e", std::stoi(all.substr(at + 1)));
}

/// Label of a multiple of `step` on an axis whose largest absolute value is `largest`.
std::string label(double value, double step, double largest) {
  if (std::abs(value) < step / 2) return "0";
  if (largest >= most_plain || largest < 1e-2)
    return scientific(value, std::max(0, places(step) + static_cast<int>(std::floor(
                                                            std::log10(std::abs(value)) + 1e-9))));
  if (largest >= 1e6) {
    const bool giga = largest >= 1e9;
    const double unit = giga ? 1e9 : 1e6;
    return text(fixed(value / unit, places(step / unit)), giga ? " G" : " M");
  }
  return step >= 1 ? with_commas(std::llround(value)) : fixed(value, places(step));
}

/// Ticks at the multiples of `step` within [low, high].
std::vector<Tick> multiples(double low, double high, double step) {
  std::vector<Tick> ticks;
  const double largest = std::max(std::abs(low), std::abs(high));
  const double tolerance = 1e-9 * (high - low);
  for (double n = std::ceil((low - tolerance) / step); n * step <= high + tolerance; ++n)
    ticks.push_back({n * step, label(n * step, step, largest)});
  return ticks;
}

}  // namespace

Ticks round_ticks(double low, double high, int most) {
  if (!(high > low)) {
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    high = low + room;
    low -= low == 0 ? 0 : room;
  }
  const double step = round_up((high - low) / most);
  low = std::floor(low / step + 1e-9) * step;
  high = std::ceil(high / step - 1e-9) * step;
  return {low, high, multiples(low, high, step)};
}

Ticks step_ticks(double low, double high, int most) {
  if (!(high > low)) high = low + 1;
  const double step = std::max(1.0, round_up((high - low) / most));
  return {low, high, multiples(low, high, step)};
}

Ticks log_ticks(double low, double high, int most) {
  if (!(high > low)) {
    high = low * 1.1;
    low /= 1.1;
  }
  const double decades = std::log10(high / low);
  if (decades < 0.7) {
    Ticks ticks = round_ticks(low, high, most);
    std::erase_if(ticks.ticks, [](const Tick& t) { return t.at <= 0; });
    if (ticks.low <= 0) ticks.low = low;
    return ticks;
  }
  std::vector<double> factors{1, 2, 5};
  if (decades > 2.5) factors = {1};
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / most)));
  Ticks ticks{low, high, {}};
  std::vector<double> all;
  const int first = static_cast<int>(std::floor(std::log10(low)));
  for (int power = first - first % stride - stride; power <= std::log10(high) + stride;
       power += stride)
    for (const double factor : factors) all.push_back(factor * std::pow(10.0, power));
  // The axis begins and ends at a tick.
  const auto above = std::upper_bound(all.begin(), all.end(), low * (1 + 1e-9));
  const auto end = std::lower_bound(all.begin(), all.end(), high * (1 - 1e-9));
  // With ticks of 1e6 or more, all ticks from 1000 on have the exponential form.
  const double most_written = *end >= 1e6 ? 1e3 : 1e6;
  for (auto at = above - 1; at <= end; ++at)
    ticks.ticks.push_back(
        {*at, *at >= 1e-2 && *at < most_written ? short_number(*at) : scientific(*at, 0)});
  ticks.low = ticks.ticks.front().at;
  ticks.high = ticks.ticks.back().at;
  return ticks;
}

std::string short_number(double value, int digits) {
  if (!std::isfinite(value)) return "not finite";
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < 1e-3 || size >= most_plain) return scientific(value, digits - 1);
  if (size >= std::pow(10.0, digits - 1)) return with_commas(std::llround(value));
  const int before = static_cast<int>(std::floor(std::log10(size))) + 1;
  std::string out = fixed(value, std::max(0, digits - before));
  if (out.find('.') == std::string::npos) return out;
  out.erase(out.find_last_not_of('0') + 1);
  if (out.ends_with('.')) out.pop_back();
  return out;
}

}  // namespace trireme::commands
