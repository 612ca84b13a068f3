#include <trireme/base/check.hpp>
#include <trireme/commands/report/run_report.hpp>

#include <nlohmann/json.hpp>

#include <fstream>
#include <limits>
#include <optional>

namespace trireme::commands {
namespace {

using Json = nlohmann::json;

constexpr std::string_view remedy =
    "; remove the line, or give another run: `trireme train` writes one JSON object a line";

std::string shown(const Json& value) {
  return value.is_structured() ? value.type_name() : value.dump().substr(0, 60);
}

/// A line of the file, for messages.
struct Line {
  const std::string& path;
  std::int64_t number;
  Json json;

  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(text(path, ":", number, ": ", what, remedy));
  }

  const Json& at(const char* key) const {
    const auto found = json.find(key);
    if (found == json.end()) fail(text("has no \"", key, "\""));
    return *found;
  }

  /// null stands for a number that was not finite.
  double real(const char* key) const {
    const Json& value = at(key);
    if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!value.is_number()) fail(text("\"", key, "\" is ", shown(value), ", expected a number"));
    return value.get<double>();
  }
  std::optional<double> maybe(const char* key) const {
    if (!json.contains(key)) return std::nullopt;
    return real(key);
  }
  std::int64_t whole(const char* key) const {
    const Json& value = at(key);
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<std::uint64_t>() >> 62 == 0);
    if (!fits || value.get<std::int64_t>() < 0)
      fail(text("\"", key, "\" is ", shown(value), ", expected a number from 0 on"));
    return value.get<std::int64_t>();
  }
};

/// Terms of the training objective beside that of tokens: "pair_loss", "validation_pair_loss".
void add_other_losses(train::Metrics& m, const Line& line) {
  constexpr std::string_view validation = "validation_";
  for (const auto& [key, value] : line.json.items()) {
    if (!key.ends_with("_loss") || key == "validation_loss") continue;
    if (key.starts_with(validation))
      m.other_validation_losses.push_back({key.substr(validation.size()), line.real(key.c_str())});
    else
      m.other_losses.push_back({key, line.real(key.c_str())});
  }
}

train::Metrics record_of(const Line& line) {
  train::Metrics m;
  m.step = line.whole("step");
  m.loss = line.real("loss");
  m.learning_rate = line.real("learning_rate");
  m.gradient_norm = line.real("gradient_norm");
  m.skipped_steps = line.whole("skipped_steps");
  m.global_batch = line.whole("global_batch");
  m.tokens = line.whole("tokens");
  m.tokens_per_second = line.real("tokens_per_second");
  m.step_seconds = line.real("step_seconds");
  m.flops_utilization = line.real("flops_utilization");
  m.peak_bytes = line.whole("peak_bytes");
  m.loss_scale = line.maybe("loss_scale");
  m.validation_loss = line.maybe("validation_loss");
  add_other_losses(m, line);
  m.bits_per_byte = line.maybe("bits_per_byte");
  return m;
}

std::string shortened(const std::string& content) {
  constexpr std::size_t most = 60;
  return content.size() <= most ? content : content.substr(0, most) + "…";
}

}  // namespace

RunRecords read_records(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  check_usage(in.is_open(), path, ": cannot be opened for reading");
  RunRecords records;
  std::int64_t number = 0;
  for (std::string content; std::getline(in, content);) {
    ++number;
    const bool whole = !in.eof();  // a line end follows
    Json json = Json::parse(content, nullptr, false);
    if (!json.is_object() && !whole) {
      records.torn = true;
      break;
    }
    const Line line{path, number, std::move(json)};
    if (!line.json.is_object()) line.fail(text("`", shortened(content), "` is no JSON object"));
    const train::Metrics record = record_of(line);
    const std::int64_t before = records.steps.empty() ? 0 : records.steps.back().step;
    if (record.step <= before)
      line.fail(text("\"step\" is ", record.step, ", expected more than the ", before, " before"));
    records.steps.push_back(record);
  }
  check_usage(!in.bad(), path, ": cannot be read");
  return records;
}

}  // namespace trireme::commands
