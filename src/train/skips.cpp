#include <trireme/train/skips.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <charconv>

namespace trireme::train {
namespace {

constexpr const char* updates_key = "optimizer.updates";
constexpr const char* in_row_key = "optimizer.skipped_in_row";
constexpr const char* scale_key = "optimizer.loss_scale";
constexpr const char* scale_before_key = "optimizer.loss_scale_before";
constexpr const char* scale_steps_key = "optimizer.loss_scale_steps";

std::int64_t number_in(const checkpoint::RunState& state, const char* key, std::int64_t otherwise) {
  const auto found = state.values.find(key);
  if (found == state.values.end()) return otherwise;
  const std::string& written = found->second;
  std::int64_t value = -1;
  const char* end = written.data() + written.size();
  const auto [stop, error] = std::from_chars(written.data(), end, value);
  check(error == std::errc() && stop == end && value >= 0 && value <= state.step,
        "the checkpoint of step ", state.step, " says ", key, " = '", written,
        "', expected a number from 0 to ", state.step);
  return value;
}

std::optional<double> scale_in(const checkpoint::RunState& state, const char* key) {
  const auto found = state.values.find(key);
  if (found == state.values.end()) return std::nullopt;
  const std::string& written = found->second;
  double value = 0;
  const char* end = written.data() + written.size();
  const auto [stop, error] = std::from_chars(written.data(), end, value);
  check(error == std::errc() && stop == end && value > 0 && value < 1e300,
        "the checkpoint of step ", state.step, " says ", key, " = '", written,
        "', expected a number above 0");
  return value;
}

}  // namespace

std::map<std::string, std::string> to_values(const Skips& skips, std::int64_t step) {
  // Servers may skip several updates of one step.
  const std::int64_t updates = std::max<std::int64_t>(0, step - skips.total);
  const std::int64_t in_row = std::min(skips.in_row, step - updates);
  std::map<std::string, std::string> values{{updates_key, std::to_string(updates)},
                                            {in_row_key, std::to_string(in_row)}};
  if (!skips.loss_scale) return values;
  values.emplace(scale_key, text(*skips.loss_scale));
  values.emplace(scale_steps_key, std::to_string(skips.scale_steps));
  if (skips.scale_before) values.emplace(scale_before_key, text(*skips.scale_before));
  return values;
}

Skips skips_of(const checkpoint::RunState& state) {
  Skips skips;
  skips.total = state.step - number_in(state, updates_key, state.step);
  skips.in_row = number_in(state, in_row_key, 0);
  check(skips.in_row <= skips.total, "the checkpoint of step ", state.step, " says ", skips.in_row,
        " steps were skipped in a row, and ", skips.total, " in all");
  skips.loss_scale = scale_in(state, scale_key);
  skips.scale_before = scale_in(state, scale_before_key);
  skips.scale_steps = number_in(state, scale_steps_key, 0);
  return skips;
}

}  // namespace trireme::train
