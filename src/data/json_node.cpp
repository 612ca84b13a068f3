// Values of a JSON file with their paths.
#include <trireme/data/json_node.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/data/unicode.hpp>

#include <cmath>

namespace trireme::data {
namespace {

const nlohmann::json nothing;

bool is_shallow(const nlohmann::json& json, int levels) {
  if (!json.is_structured()) return true;
  if (levels == 0 || json.size() > 100) return false;
  for (const auto& part : json)
    if (!is_shallow(part, levels - 1)) return false;
  return true;
}

}  // namespace

JsonNode JsonNode::operator[](const char* key) const {
  const bool top = path.ends_with(": ");
  const auto found = json.is_object() ? json.find(key) : json.end();
  const bool there = json.is_object() && found != json.end();
  return {there ? *found : nothing, path + (top ? "" : ".") + key};
}

JsonNode JsonNode::operator[](std::size_t index) const {
  return {json.at(index), text(path, "[", index, "]")};
}

void JsonNode::refuse(const std::string& supported) const {
  std::string value =  // dump() recurses, so it gets no deep value
      is_shallow(json, 4) ? json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                          : text("(", json.type_name(), " of ", json.size(), " parts)");
  if (value.size() > 100) value = value.substr(0, 100) + "...";
  throw UsageError(text(path, " = ", value, " is not supported; expected ", supported));
}

bool JsonNode::is_nothing() const {
  return json.is_null() || (json.is_string() && json.get_ref<const std::string&>().empty());
}

void JsonNode::expect_nothing() const {
  if (!is_nothing()) refuse("null");
}

bool JsonNode::flag(bool otherwise) const {
  if (json.is_null()) return otherwise;
  if (!json.is_boolean()) refuse("true or false");
  return json.get<bool>();
}

void JsonNode::expect_false() const {
  if (flag(false)) refuse("false");
}

const std::string& JsonNode::string() const {
  if (!json.is_string()) refuse("a string");
  return json.get_ref<const std::string&>();
}

char32_t JsonNode::character() const {
  const std::string& value = string();
  std::size_t at = 0;
  if (value.empty() || utf8_run(value).valid != value.size()) refuse("one character");
  const char32_t c = next_character(value, at);
  if (at != value.size()) refuse("one character");
  return c;
}

void JsonNode::expect_type(const char* type) const {
  const JsonNode member = (*this)["type"];
  if (member.json != type) member.refuse(text('"', type, '"'));
}

std::int64_t JsonNode::id() const {
  if (!json.is_number_integer() || json.get<std::int64_t>() < 0) refuse("an id");
  return json.get<std::int64_t>();
}

std::int64_t JsonNode::count(std::int64_t largest) const {
  if (!json.is_number_integer() || json.get<std::int64_t>() < 0 ||
      json.get<std::int64_t>() > largest)
    refuse(text("an integer of 0 to ", largest));
  return json.get<std::int64_t>();
}

double JsonNode::number() const {
  if (!json.is_number() || !std::isfinite(json.get<double>())) refuse("a finite number");
  return json.get<double>();
}

std::size_t JsonNode::list_size(std::size_t most, const std::string& supported) const {
  if (!json.is_array() || json.size() > most) refuse(supported);
  return json.size();
}

}  // namespace trireme::data
