#include <trireme/commands/report/json_lines.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>

#include <fstream>
#include <limits>

namespace trireme::commands {
namespace {

using Json = nlohmann::json;

std::string shortened(const std::string& content) {
  constexpr std::size_t most = 60;
  return content.size() <= most ? content : content.substr(0, most) + "…";
}

}  // namespace

std::string shown(const Json& value) {
  return value.is_structured()
             ? value.type_name()
             : value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60);
}

void JsonLine::fail(const std::string& what) const {
  throw UsageError(text(path, ":", number, ": ", what,
                        "; remove the line, or give another run: `trireme train` writes one JSON "
                        "object a line"));
}

const Json& JsonLine::at(const char* key) const {
  const auto found = json.find(key);
  if (found == json.end()) fail(text("has no \"", key, "\""));
  return *found;
}

double JsonLine::real(const char* key) const {
  const Json& value = at(key);
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) fail(text("\"", key, "\" is ", shown(value), ", expected a number"));
  return value.get<double>();
}

std::int64_t JsonLine::whole(const char* key) const {
  const Json& value = at(key);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() >> 62 == 0);
  if (!fits || value.get<std::int64_t>() < 0)
    fail(text("\"", key, "\" is ", shown(value), ", expected an integer of at least 0"));
  return value.get<std::int64_t>();
}

bool JsonLine::boolean(const char* key) const {
  const Json& value = at(key);
  if (!value.is_boolean())
    fail(text("\"", key, "\" is ", shown(value), ", expected true or false"));
  return value.get<bool>();
}

std::string JsonLine::string(const char* key) const {
  const Json& value = at(key);
  if (!value.is_string()) fail(text("\"", key, "\" is ", shown(value), ", expected a string"));
  return value.get<std::string>();
}

std::optional<double> JsonLine::maybe(const char* key) const {
  if (!json.contains(key)) return std::nullopt;
  return real(key);
}

bool read_json_lines(const std::string& path, const std::function<void(const JsonLine&)>& read) {
  expect_file(path, path);
  std::ifstream in(path, std::ios::binary);
  check_usage(in.is_open(), path, ": cannot be opened for reading");
  std::int64_t number = 0;
  for (std::string content; std::getline(in, content);) {
    ++number;
    const bool whole = !in.eof();  // the line is complete
    const JsonLine line{path, number, Json::parse(content, nullptr, false)};
    if (!line.json.is_object()) {
      if (!whole) return true;
      line.fail(text("`", shortened(content), "` is no JSON object"));
    }
    read(line);
  }
  check_usage(!in.bad(), path, ": cannot be read");
  return false;
}

}  // namespace trireme::commands
