#include <trireme/base/check.hpp>
#include <trireme/train/skips.hpp>

#include <charconv>

namespace trireme::train {
namespace {

constexpr const char* updates_key = "optimizer.updates";
constexpr const char* in_row_key = "optimizer.skipped_in_row";

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

}  // namespace

std::map<std::string, std::string> to_values(const Skips& skips, std::int64_t step) {
  return {{updates_key, std::to_string(step - skips.total)},
          {in_row_key, std::to_string(skips.in_row)}};
}

Skips skips_of(const checkpoint::RunState& state) {
  Skips skips;
  skips.total = state.step - number_in(state, updates_key, state.step);
  skips.in_row = number_in(state, in_row_key, 0);
  check(skips.in_row <= skips.total, "the checkpoint of step ", state.step, " says ", skips.in_row,
        " steps were skipped in a row, and ", skips.total, " in all");
  return skips;
}

}  // namespace trireme::train
