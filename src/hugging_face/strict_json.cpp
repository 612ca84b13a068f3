#include <trireme/hugging_face/strict_json.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/json_mistake.hpp>
#include <trireme/hugging_face/complaints.hpp>

#include <set>
#include <vector>

namespace trireme::hugging_face {
namespace {

using Json = nlohmann::json;

/// Receives the events of the parser and checks the rules without building values.
class Watcher : public nlohmann::json_sax<Json> {
 public:
  Watcher(const std::string& path, const JsonRules& rules) : path_(path), rules_(rules) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t number, const string_t& written) override {
    const std::string digits = written.substr(0, written.find_first_of("eE"));
    const bool lost = number == 0 && digits.find_first_of("123456789") != std::string::npos;
    check_usage(!lost, path_, ": ", rules_.what, " holds the number ", shortened(written),
                ", which is too close to 0", rules_.remedy);
    return value();
  }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    check_usage(names_.back().insert(name).second, path_, ": '", shortened(name),
                "' appears twice in ", rules_.what, rules_.remedy);
    return value();
  }
  /// Json::parse() reports the error afterwards.
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

 private:
  bool value() const {
    check_usage(std::ssize(names_) <= rules_.depth, path_, ": ", rules_.what,
                " is nested deeper than ", rules_.depth, rules_.remedy);
    return true;
  }
  bool open() {
    value();
    names_.emplace_back();
    return true;
  }
  bool close() {
    names_.pop_back();
    return true;
  }

  const std::string& path_;
  const JsonRules& rules_;
  std::vector<std::set<std::string>> names_;  ///< keys of each open object; empty for an open list
};

}  // namespace

Json parse_strict(const std::string& content, const std::string& path, const JsonRules& rules) {
  Watcher watcher(path, rules);
  Json::sax_parse(content, &watcher);
  try {
    Json parsed = Json::parse(content);
    check_usage(parsed.is_object(), path, ": ", rules.what, " is not a JSON object", rules.remedy);
    return parsed;
  } catch (const Json::exception&) {
    throw UsageError(
        text(path, ": ", rules.what, " is not JSON: ", json_mistake(content), rules.remedy));
  }
}

}  // namespace trireme::hugging_face
