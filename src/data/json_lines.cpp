// Reads files with one JSON object per line.
#include <trireme/data/json_lines.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/json_mistake.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <string_view>

namespace trireme::data {
namespace {

constexpr std::size_t line_limit = std::size_t{64} << 20;
constexpr std::size_t shown_characters = 60;
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

std::string shown(const nlohmann::ordered_json& value) {
  if (value.is_structured())
    return text(value.is_array() ? "a list of " : "an object of ", value.size());
  std::string all = printable(value.dump());
  if (all.size() <= shown_characters) return all;
  const std::size_t end = utf8_run(std::string_view(all).substr(0, shown_characters)).valid;
  return all.substr(0, end) + "...";
}

void use_line(std::string_view line, const std::string& where, const std::string& form,
              const std::function<void(const JsonLine&)>& use) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.find_first_not_of(" \t") == std::string_view::npos) return;
  if (const Utf8Run run = utf8_run(line); run.valid < line.size())
    throw UsageError(text(where, ": is not UTF-8: byte ", run.valid + 1,
                          " of the line begins no character; convert the file to UTF-8"));
  try {
    const auto json = nlohmann::ordered_json::parse(line);
    const JsonLine object(json, where, form);
    if (!json.is_object()) object.refuse(text("is ", shown(json), ", expected an object"));
    with_place(where, [&] { use(object); });
  } catch (const nlohmann::json::exception&) {
    throw UsageError(text(where, ": is not JSON: ", json_mistake(line),
                          "; write one object per line, such as ", form));
  }
}

}  // namespace

void with_place(const std::string& place, const std::function<void()>& use) {
  try {
    use();
  } catch (const PlacedError&) {
    throw;
  } catch (const UsageError& error) {
    if (std::string_view(error.what()).starts_with(place)) throw;
    throw UsageError(text(place, ": ", error.what()));
  }
}

void JsonLine::refuse(const std::string& complaint) const {
  throw UsageError(text(where_, ": ", complaint, "; write lines such as ", form_));
}

void JsonLine::refuse(const char* key, const std::string& expected) const {
  if (!has(key)) refuse(text("has no \"", key, "\""));
  refuse(text("\"", key, "\" is ", shown(json_[key]), ", expected ", expected));
}

const std::string& JsonLine::string(const char* key) const {
  if (!has(key) || !json_[key].is_string()) refuse(key, "a string");
  return json_[key].get_ref<const std::string&>();
}

std::vector<std::string> JsonLine::strings(const char* key) const {
  const bool is_list = has(key) && json_[key].is_array() && !json_[key].empty() &&
                       std::ranges::all_of(json_[key], [](const auto& x) { return x.is_string(); });
  if (!is_list) refuse(key, "a list of at least one string, and of strings only");
  return json_[key].get<std::vector<std::string>>();
}

void read_json_lines(const std::string& path, const std::string& form,
                     const std::function<void(const JsonLine&)>& use,
                     const std::function<void(std::int64_t)>& progress) {
  const std::string name = path == "-" ? "standard input" : path;
  io::TextReader reader(path);
  std::vector<char> buffer(read_bytes);
  std::string held;  // beginning of a line
  std::int64_t number = 1;
  std::int64_t total = 0;
  const auto take = [&](std::string_view line) {
    if (number == 1 && line.starts_with(byte_order_mark)) line.remove_prefix(3);
    use_line(line, text(name, ":", number), form, use);
    ++number;
  };
  while (const std::size_t bytes = reader.read(buffer)) {
    std::string_view rest(buffer.data(), bytes);
    for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;) {
      held += rest.substr(0, end);
      take(held);
      held.clear();
      rest.remove_prefix(end + 1);
    }
    held += rest;
    check_usage(held.size() <= line_limit, name, ":", number, ": is longer than ", line_limit,
                " bytes; write one object per line");
    total += static_cast<std::int64_t>(bytes);
    if (progress) progress(total);
  }
  if (!held.empty()) take(held);
}

}  // namespace trireme::data
