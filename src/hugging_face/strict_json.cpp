#include <trireme/base/check.hpp>
#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/strict_json.hpp>

#include <array>
#include <set>

namespace trireme::hugging_face {

using Json = nlohmann::json;

Json parse_strict(const std::string& content, const std::string& path, const JsonRules& rules) {
  std::array<std::set<std::string>, 64> names;  // names in the open object at each depth
  const auto watch = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    check_usage(depth <= rules.depth, path, ": ", rules.what, " is nested deeper than ",
                rules.depth, rules.remedy);
    const auto at = static_cast<std::size_t>(depth);
    if (event == Json::parse_event_t::object_start) names.at(at).clear();
    if (event == Json::parse_event_t::key) {
      const auto name = parsed.get<std::string>();
      check_usage(names.at(at - 1).insert(name).second, path, ": '", shortened(name),
                  "' appears twice in ", rules.what, rules.remedy);
    }
    return true;
  };
  try {
    Json json = Json::parse(content, watch);
    check_usage(json.is_object(), path, ": ", rules.what, " is not a JSON object", rules.remedy);
    return json;
  } catch (const Json::exception& error) {
    throw UsageError(
        text(path, ": ", rules.what, " is not JSON (", error.what(), ")", rules.remedy));
  }
}

}  // namespace trireme::hugging_face
