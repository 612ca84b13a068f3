// Reads conversations in the forms of transformers, TRL, OpenAI, Mistral and axolotl.
#include <trireme/data/chat_lines.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/chat.hpp>

#include <algorithm>
#include <array>
#include <optional>

namespace trireme::data {
namespace {

using Json = nlohmann::ordered_json;

/// Members that describe a line or message and do not affect training.
constexpr std::array<std::string_view, 32> descriptions{
    "_id",       "author",     "category",   "conversation_id",
    "created",   "created_at", "dataset",    "date",
    "id",        "idx",        "index",      "lang",
    "language",  "license",    "message_id", "meta",
    "metadata",  "model",      "name",       "origin",
    "prompt_id", "score",      "source",     "split",
    "tags",      "task",       "timestamp",  "token_count",
    "topic",     "url",        "uuid",       "version"};

/// Members with a loss weight: of OpenAI and Mistral (weight), axolotl (train, training), ms-swift
/// and slime (loss, loss_mask, step_loss_mask).
constexpr std::array<std::string_view, 6> weight_members{"weight", "train",     "training",
                                                         "loss",   "loss_mask", "step_loss_mask"};

template <class Names>
bool is_one_of(std::string_view name, const Names& names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_nothing(const Json& value) {
  return value.is_null() || (value.is_array() && value.empty());
}

/// First member that has a value and is neither in `read` nor a description or a loss weight.
std::optional<std::string> unknown_member(const Json& object,
                                          std::initializer_list<std::string_view> read) {
  for (const auto& [key, value] : object.items())
    if (!is_nothing(value) && !is_one_of(key, read) && !is_one_of(key, descriptions) &&
        !is_one_of(key, weight_members))
      return key;
  return std::nullopt;
}

std::optional<bool> flag_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value == 0 || value == 1) return value == 1;
  return std::nullopt;
}

std::string value_text(const Json& value) {
  return value.is_structured() ? "an " + std::string(value.type_name()) : value.dump();
}

/// Whether the value is nested at most `levels` deep, so that it can be copied by recursion.
bool is_shallow(const Json& value, int levels = 64) {
  if (!value.is_structured()) return true;
  return levels > 0 &&
         std::ranges::all_of(value, [&](const Json& part) { return is_shallow(part, levels - 1); });
}

/// The value, parsed if it is a string, as in OpenAI's arguments and TRL's tools. Null if the
/// string is not JSON or the value is nested too deeply.
Json parsed(const Json& value) {
  if (!value.is_string()) return is_shallow(value) ? value : Json();
  Json inner = Json::parse(value.get_ref<const std::string&>(), nullptr, false);
  return inner.is_discarded() || !is_shallow(inner) ? Json() : inner;
}

/// Reads one message; errors name the line and the number of the message.
class MessageReader {
 public:
  /// Appends the paths of the message's images to `images`.
  MessageReader(const JsonLine& line, const Json& json, std::size_t number,
                std::string_view image_mark, std::vector<std::string>& images)
      : line_(line), json_(json), number_(number), image_mark_(image_mark), images_(images) {}

  ChatMessage read() {
    ChatMessage message;
    if (!json_.is_object() || !is_string("role")) refuse_form();
    message.role = json_["role"].get<std::string>();
    if (const auto unknown =
            unknown_member(json_, {"role", "content", "tool_calls", "tool_call_id"}))
      refuse(text("has the member \"", *unknown,
                  "\", which Trireme does not read; remove it, or write its meaning into "
                  "\"content\""));
    message.calls = calls(message.role);
    message.content = content(message);
    message.call_id = optional_string(json_, "tool_call_id");
    message.counted = counted(message.role);
    return message;
  }

 private:
  [[noreturn]] void refuse(const std::string& complaint) const {
    throw UsageError(text(line_.where(), ": message ", number_, " of \"messages\" ", complaint));
  }
  [[noreturn]] void refuse_form() const {
    line_.refuse(text("message ", number_,
                      " of \"messages\" is not an object with the strings \"role\" and "
                      "\"content\""));
  }
  bool has(const char* key) const { return json_.contains(key) && !is_nothing(json_[key]); }
  bool is_string(const char* key) const { return json_.contains(key) && json_[key].is_string(); }
  std::string optional_string(const Json& object, const char* key) const {
    if (!object.contains(key) || object[key].is_null()) return "";
    if (!object[key].is_string()) refuse(text("has a \"", key, "\" that is not a string"));
    return object[key].get<std::string>();
  }

  std::string content(const ChatMessage& message) const {
    if (!message.calls.empty() && !has("content")) return "";
    if (has("content") && json_["content"].is_array()) return joined_parts(json_["content"]);
    if (!is_string("content")) refuse_form();
    return json_["content"].get<std::string>();
  }

  /// The text of a list of parts: the texts, and a mark for each image.
  std::string joined_parts(const Json& parts) const {
    std::string words;
    for (const Json& part : parts) {
      const std::string type = part.is_object() ? optional_string(part, "type") : "";
      if (type != "text" && type != "image")
        refuse(R"(has a part of "content" that is neither {"type": "text", "text": "..."} nor )"
               R"({"type": "image", "image": "PATH"})");
      const bool is_text = type == "text";
      const auto unknown = is_text ? unknown_member(part, {"type", "text"})
                                   : unknown_member(part, {"type", "image", "path"});
      if (unknown)
        refuse(text("has a part of \"content\" of type ", type, " with the member \"", *unknown,
                    "\", which Trireme does not read; remove it"));
      if (is_text) {
        words += optional_string(part, "text");
        continue;
      }
      if (image_mark_.empty())
        refuse("has an image, which only `trireme tokenize --images SIZE` reads");
      const std::string path = optional_string(part, "image");
      images_.push_back(path.empty() ? optional_string(part, "path") : path);
      words += image_mark_;
    }
    return words;
  }

  std::vector<ToolCall> calls(const std::string& role) const {
    std::vector<ToolCall> found;
    if (!has("tool_calls")) return found;
    const Json& list = json_["tool_calls"];
    if (!list.is_array()) refuse("has \"tool_calls\" that are not a list");
    if (role != "assistant")
      refuse(text("has \"tool_calls\", but role '", role, "'; only an assistant calls tools"));
    for (const Json& call : list) found.push_back(call_of(call));
    return found;
  }

  ToolCall call_of(const Json& call) const {
    const auto refuse_call = [&]() {
      refuse(
          text("has a tool call that is not of the form {\"type\": \"function\", "
               "\"function\": {\"name\": \"f\", \"arguments\": {...}}}"));
    };
    if (!call.is_object()) refuse_call();
    const bool wrapped = call.contains("function");
    const Json& function = wrapped ? call["function"] : call;
    if (!function.is_object()) refuse_call();
    if (const auto unknown = wrapped ? unknown_member(call, {"id", "type", "function"})
                                     : unknown_member(call, {"id", "type", "name", "arguments"}))
      refuse(text("has a tool call with the member \"", *unknown,
                  "\", which Trireme does not read; remove it"));
    if (call.contains("type") && !call["type"].is_null() && call["type"] != "function")
      refuse_call();
    ToolCall found{optional_string(call, "id"), Json::object()};
    for (const auto& [key, value] : function.items()) {
      if (key == "name" && value.is_string())
        found.function[key] = value;
      else if (key == "arguments")
        found.function[key] = parsed(value);
      else if (wrapped && !is_nothing(value))
        refuse(text("has a tool call whose \"function\" has the member \"", key,
                    "\", which Trireme does not read; remove it"));
    }
    if (!found.function.contains("name") || !found.function.contains("arguments") ||
        !found.function["arguments"].is_object())
      refuse_call();
    return found;
  }

  /// Whether a message counts in the loss; true without a loss weight. UsageError for invalid or
  /// contradictory loss weights, and for a weight of 1 unless `role` is assistant.
  bool counted(const std::string& role) const {
    std::optional<bool> found;
    for (const std::string_view key : weight_members) {
      if (!has(std::string(key).c_str())) continue;
      const std::optional<bool> flag = flag_of(json_[key]);
      if (!flag)
        refuse(
            text("has \"", key, "\": ", value_text(json_[key]), ", expected 0, 1, false or true"));
      if (found && *found != *flag)
        refuse(text("has members for its loss weight that contradict each other, \"", key,
                    "\" and another; keep one"));
      if (*flag && role != "assistant")
        refuse(text("has \"", key, "\": ", value_text(json_[key]), ", but role '", role,
                    "'; only an assistant's messages count in the loss"));
      found = flag;
    }
    return found.value_or(true);
  }

  const JsonLine& line_;
  const Json& json_;
  std::size_t number_;
  std::string_view image_mark_;
  std::vector<std::string>& images_;
};

std::vector<Json> tools_of(const JsonLine& line) {
  std::vector<Json> tools;
  if (!line.has("tools")) return tools;
  const Json& given = line.json()["tools"];
  if (is_nothing(given)) return tools;
  const Json list = parsed(given);
  if (!list.is_array() || !std::ranges::all_of(list, [](const Json& t) { return t.is_object(); }))
    line.refuse("tools", "a list of objects such as {\"type\": \"function\", \"function\": {...}}");
  tools.assign(list.begin(), list.end());
  return tools;
}

}  // namespace

void expect_full_weight(const JsonLine& line) {
  for (const std::string_view key : weight_members) {
    const auto found = line.json().find(key);
    if (found == line.json().end() || is_nothing(*found) || flag_of(*found) == true) continue;
    throw UsageError(text(line.where(), ": has \"", key, "\": ", value_text(*found),
                          ", but lines have no loss weight; remove the line, or the member"));
  }
}

void expect_known_members(const JsonLine& line, std::initializer_list<std::string_view> read) {
  expect_full_weight(line);
  if (const auto unknown = unknown_member(line.json(), read))
    throw UsageError(text(line.where(), ": has the member \"", *unknown,
                          "\", which Trireme does not read; remove it if the model need not learn "
                          "from it (jq -c 'del(.[\"",
                          *unknown, "\"])')"));
}

Chat chat_of(const JsonLine& line, std::string_view image_mark) {
  const auto& list = line.json()["messages"];
  constexpr const char* expected = "a list of objects with \"role\" and \"content\"";
  if (!list.is_array() || list.empty()) line.refuse("messages", expected);
  Chat chat;
  for (const auto& entry : list)
    chat.messages.push_back(
        MessageReader(line, entry, chat.messages.size() + 1, image_mark, chat.images).read());
  chat.tools = tools_of(line);
  try {
    for (const ChatMessage& message : chat.messages)
      for (const ToolCall& call : message.calls) python_json(call.function);
    for (const Json& tool : chat.tools) python_json(tool);
  } catch (const UsageError& error) {
    throw UsageError(text(line.where(), ": ", error.what()));
  }
  return chat;
}

void expect_plain(const Chat& chat, const Tokenizer& tokenizer, const std::string& where,
                  const std::string& remedy) {
  const auto names = tokenizer.special_tokens();
  const auto expect = [&](const std::string& part, const char* place) {
    for (const auto& [name, id] : names)
      check_usage(part.find(name) == std::string::npos, where, ": ", place,
                  " contains the name of the special token ", name, "; ", remedy);
  };
  for (const ChatMessage& message : chat.messages) {
    expect(message.content, "a message");
    expect(message.call_id, "a message");
    for (const ToolCall& call : message.calls) {
      expect(call.id, "a tool call");
      expect(call.function["name"].get<std::string>(), "a tool call");
      expect(python_json(call.function), "a tool call");
    }
  }
  for (const auto& tool : chat.tools) expect(python_json(tool), "a tool");
}

}  // namespace trireme::data
