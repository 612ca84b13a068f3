// The chat templates as code, and the names, special tokens and prompts of the formats.
#include <trireme/data/chat.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/types.hpp>
#include <trireme/data/unicode.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <span>
#include <string_view>

namespace trireme::data {
namespace {

/// Jinja's `trim`.
std::string trimmed(std::string_view text) {
  for (std::size_t at = 0; !text.empty(); at = 0) {
    if (!is_space(next_character(text, at))) break;
    text.remove_prefix(at);
  }
  while (!text.empty()) {
    std::string_view shorter = text;
    if (!is_space(take_last_character(shorter))) break;
    text = shorter;
  }
  return std::string(text);
}

void expect_role(const ChatMessage& message, std::initializer_list<std::string_view> roles) {
  if (std::ranges::find(roles, message.role) != roles.end()) return;
  throw UsageError(text("has a message of role '", message.role, "', expected one of ",
                        join(std::vector<std::string>(roles.begin(), roles.end()), ", ")));
}

void expect_no_tools(const Chat& chat, const char* format) {
  check_usage(!uses_tools(chat), "has tools, tool calls or their results, which ", format,
              " does not define");
}

/// UsageError for a message with both content and calls.
void expect_calls_alone(const ChatMessage& message) {
  check_usage(message.calls.empty() || message.content.empty(),
              "has a message with \"content\" beside \"tool_calls\", which this chat format does "
              "not write");
}

void expect_turns(std::span<const ChatMessage* const> messages) {
  constexpr std::array<std::string_view, 2> roles{"user", "assistant"};
  for (std::size_t i = 0; i < messages.size(); ++i)
    check_usage(messages[i]->role == roles.at(i % 2), "has a message of role '", messages[i]->role,
                "' where one of '", roles.at(i % 2),
                "' must follow: in this chat format user and assistant take turns");
}

const std::string& name_of(const ToolCall& call) {
  return call.function["name"].get_ref<const std::string&>();
}

class Writer {
 public:
  void add(std::string_view part) { out_.text += part; }
  /// Adds a message and the token that ends it. A counted message of the assistant is an answer.
  void add(const ChatMessage& message, std::string_view words, std::string_view end) {
    const std::size_t begin = out_.text.size();
    add(words);
    add(end);
    if (message.role == "assistant" && message.counted)
      out_.answers.emplace_back(begin, out_.text.size());
  }
  Conversation take() { return std::move(out_); }

 private:
  Conversation out_;
};

std::string qwen_answer(const ChatMessage& message) {
  std::string words = message.content;
  for (const ToolCall& call : message.calls)
    words += text(words.empty() ? "" : "\n", R"(<tool_call>
{"name": ")",
                  name_of(call), R"(", "arguments": )", python_json(call.function["arguments"]),
                  "}\n</tool_call>");
  return words;
}

constexpr std::string_view qwen_tools_begin =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view qwen_tools_end =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
    "\"arguments\": <args-json-object>}\n</tool_call>";

// The functions write_... follow the Jinja templates in the models' repositories.

/// ChatML and Qwen2.5-Instruct. `default_system`: system message if the chat has none; "": none.
Conversation write_qwen(const Chat& chat, std::string_view default_system) {
  std::span<const ChatMessage> turns(chat.messages);
  Writer out;
  const bool has_system = turns.front().role == "system";
  const bool writes_system = has_system || !default_system.empty();
  if (writes_system || !chat.tools.empty()) out.add("<|im_start|>system\n");
  out.add(has_system ? std::string_view(turns.front().content) : default_system);
  if (!chat.tools.empty()) {
    if (writes_system) out.add("\n\n");
    out.add(qwen_tools_begin);
    for (const auto& tool : chat.tools) out.add("\n" + python_json(tool));
    out.add(qwen_tools_end);
  }
  if (writes_system || !chat.tools.empty()) out.add("<|im_end|>\n");
  if (has_system) turns = turns.subspan(1);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const ChatMessage& m = turns[i];
    expect_role(m, {"system", "user", "assistant", "tool"});
    if (m.role != "tool") {
      out.add("<|im_start|>" + m.role + "\n");
      out.add(m, qwen_answer(m), "<|im_end|>");
      out.add("\n");
      continue;
    }
    // Consecutive results of calls form one turn of the user.
    if (i == 0 || turns[i - 1].role != "tool") out.add("<|im_start|>user");
    out.add("\n<tool_response>\n" + m.content + "\n</tool_response>");
    if (i + 1 == turns.size() || turns[i + 1].role != "tool") out.add("<|im_end|>\n");
  }
  return out.take();
}

constexpr std::string_view llama_end = "<|eot_id|>";

std::string llama_header(const std::string& role) {
  return "<|start_header_id|>" + role + "<|end_header_id|>\n\n";
}

constexpr std::string_view llama_tools =
    "Given the following functions, please respond with a JSON for a function call with its proper "
    "arguments that best answers the given prompt.\n\nRespond in the format {\"name\": function "
    "name, \"parameters\": dictionary of argument name and its value}.Do not use variables.\n\n";

std::string llama3_1_words(const ChatMessage& message) {
  if (message.calls.empty()) return trimmed(message.content);
  check_usage(message.calls.size() == 1, "has a message with ", message.calls.size(),
              " tool calls, but this chat format writes one per message");
  expect_calls_alone(message);
  const ToolCall& call = message.calls.front();
  return text(R"({"name": ")", name_of(call), R"(", "parameters": )",
              python_json(call.function["arguments"]), "}");
}

/// Meta-Llama-3-Instruct.
Conversation write_llama3(const Chat& chat) {
  expect_no_tools(chat, "llama3");
  Writer out;
  out.add("<|begin_of_text|>");
  for (const ChatMessage& m : chat.messages) {
    expect_role(m, {"system", "user", "assistant"});
    out.add(llama_header(m.role));
    out.add(m, trimmed(m.content), llama_end);
  }
  return out.take();
}

/// Llama-3.1-Instruct.
Conversation write_llama3_1(const Chat& chat) {
  std::span<const ChatMessage> turns(chat.messages);
  Writer out;
  out.add("<|begin_of_text|>" + llama_header("system"));
  if (!chat.tools.empty()) out.add("Environment: ipython\n");
  out.add("Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
  if (turns.front().role == "system") {
    out.add(trimmed(turns.front().content));
    turns = turns.subspan(1);
  }
  out.add(llama_end);
  if (!chat.tools.empty()) {
    check_usage(!turns.empty() && turns.front().role == "user",
                "has tools, which this chat format writes into the user's first message, but no "
                "such message at the beginning");
    out.add(llama_header("user"));
    out.add(llama_tools);
    for (const auto& tool : chat.tools) out.add(python_json(tool, 4) + "\n\n");
    out.add(turns.front(), trimmed(turns.front().content), llama_end);
    turns = turns.subspan(1);
  }
  for (const ChatMessage& m : turns) {
    expect_role(m, {"system", "user", "assistant", "tool", "ipython"});
    if (m.role == "tool" || m.role == "ipython") {
      out.add(llama_header("ipython"));
      out.add(m, python_json(m.content), llama_end);
    } else {
      out.add(llama_header(m.role));
      out.add(m, llama3_1_words(m), llama_end);
    }
  }
  return out.take();
}

void expect_id(const std::string& id, const char* member) {
  check_usage(id.size() == 9, "has the \"", member, "\" '", id,
              "', but in this chat format the id of a call has nine characters");
}

/// Description of a tool. The template does not escape strings.
std::string mistral_tool(const nlohmann::ordered_json& tool) {
  const auto function = tool.find("function");
  check_usage(function != tool.end() && function->is_object(),
              "has a tool without \"function\", an object");
  std::string members;
  for (const auto& [key, value] : function->items()) {
    if (key == "return") continue;
    members +=
        text(members.empty() ? "" : ", ", '"', key,
             "\": ", value.is_string() ? '"' + value.get<std::string>() + '"' : python_json(value));
  }
  return "{\"type\": \"function\", \"function\": {" + members + "}}";
}

std::string mistral_tools(const Chat& chat) {
  if (chat.tools.empty()) return "";
  std::vector<std::string> tools;
  for (const auto& tool : chat.tools) tools.push_back(mistral_tool(tool));
  return "[AVAILABLE_TOOLS] [" + join(tools, ", ") + "][/AVAILABLE_TOOLS]";
}

std::string mistral_answer(const ChatMessage& message) {
  if (message.calls.empty()) return " " + trimmed(message.content);
  expect_calls_alone(message);
  std::vector<std::string> calls;
  for (const ToolCall& call : message.calls) {
    expect_id(call.id, "id");
    std::string members = python_json(call.function);
    members.pop_back();
    calls.push_back(members + ", \"id\": \"" + call.id + "\"}");
  }
  return "[TOOL_CALLS] [" + join(calls, ", ") + "]";
}

/// Checks the roles, and that user and assistant take turns. Tool calls and results are not turns.
void expect_mistral_turns(std::span<const ChatMessage> messages) {
  std::vector<const ChatMessage*> turns;
  for (const ChatMessage& m : messages) {
    expect_role(m, {"user", "assistant", "tool"});
    if (m.role != "tool" && m.calls.empty()) turns.push_back(&m);
  }
  expect_turns(turns);
}

/// Mistral-7B-Instruct-v0.3. The system message is prepended to the first user message.
Conversation write_mistral(const Chat& chat) {
  std::span<const ChatMessage> turns(chat.messages);
  std::string system;
  if (turns.front().role == "system") {
    system = turns.front().content + "\n\n";
    turns = turns.subspan(1);
  }
  expect_mistral_turns(turns);
  const auto is_user = [](const ChatMessage& m) { return m.role == "user"; };
  const auto last = std::find_if(turns.rbegin(), turns.rend(), is_user);
  check_usage(last != turns.rend(), "has no message of role 'user'");
  Writer out;
  out.add("<s>");
  for (const ChatMessage& m : turns) {
    if (m.role == "assistant") {
      out.add(m, mistral_answer(m), "</s>");
    } else if (m.role == "tool") {
      expect_id(m.call_id, "tool_call_id");
      out.add("[TOOL_RESULTS] {\"content\": " + m.content + ", \"call_id\": \"" + m.call_id +
              "\"}[/TOOL_RESULTS]");
    } else {
      // The template finds the last user message by comparing contents.
      if (m.content == last->content) out.add(mistral_tools(chat));
      out.add("[INST] " + system + m.content + "[/INST]");
      system.clear();
    }
  }
  return out.take();
}

/// Gemma 1 and 2.
Conversation write_gemma(const Chat& chat) {
  expect_no_tools(chat, "gemma");
  std::vector<const ChatMessage*> turns;
  for (const ChatMessage& m : chat.messages) {
    expect_role(m, {"user", "assistant"});
    turns.push_back(&m);
  }
  expect_turns(turns);
  Writer out;
  out.add("<bos>");
  for (const ChatMessage& m : chat.messages) {
    out.add("<start_of_turn>" + std::string(m.role == "assistant" ? "model" : m.role) + "\n");
    out.add(m, trimmed(m.content), "<end_of_turn>");
    out.add("\n");
  }
  return out.take();
}

constexpr std::array formats{ChatFormat::chatml,   ChatFormat::qwen2_5, ChatFormat::llama3,
                             ChatFormat::llama3_1, ChatFormat::mistral, ChatFormat::gemma};

constexpr std::string_view qwen_system =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

/// Text that add_generation_prompt appends.
std::string_view begin_of_answer(ChatFormat format) {
  switch (format) {
    case ChatFormat::none:
    case ChatFormat::mistral:
      return "";
    case ChatFormat::chatml:
    case ChatFormat::qwen2_5:
      return "<|im_start|>assistant\n";
    case ChatFormat::llama3:
    case ChatFormat::llama3_1:
      return "<|start_header_id|>assistant<|end_header_id|>\n\n";
    case ChatFormat::gemma:
      return "<start_of_turn>model\n";
  }
  return "";
}

}  // namespace

ChatFormat chat_format(std::string_view name) {
  for (const ChatFormat format : formats)
    if (name_of(format) == name) return format;
  return ChatFormat::none;
}

std::string_view name_of(ChatFormat format) {
  static constexpr auto all =
      words_of<ChatFormat>("none", "chatml", "qwen2.5", "llama3", "llama3.1", "mistral", "gemma");
  return all[static_cast<std::size_t>(format)];
}

std::vector<std::string> chat_format_names() {
  std::vector<std::string> names;
  for (const ChatFormat format : formats) names.emplace_back(name_of(format));
  return names;
}

std::vector<std::string_view> special_tokens_of(ChatFormat format, bool tools) {
  switch (format) {
    case ChatFormat::none:
      return {};
    case ChatFormat::chatml:
    case ChatFormat::qwen2_5:
      return {"<|im_start|>", "<|im_end|>"};
    case ChatFormat::llama3:
    case ChatFormat::llama3_1:
      return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
    case ChatFormat::mistral:
      if (!tools) return {"<s>", "</s>", "[INST]", "[/INST]"};
      return {"<s>",
              "</s>",
              "[INST]",
              "[/INST]",
              "[AVAILABLE_TOOLS]",
              "[/AVAILABLE_TOOLS]",
              "[TOOL_CALLS]",
              "[TOOL_RESULTS]",
              "[/TOOL_RESULTS]"};
    case ChatFormat::gemma:
      return {"<bos>", "<start_of_turn>", "<end_of_turn>"};
  }
  return {};
}

bool uses_tools(const Chat& chat) {
  return !chat.tools.empty() || std::ranges::any_of(chat.messages, [](const ChatMessage& m) {
    return !m.calls.empty() || m.role == "tool" || m.role == "ipython";
  });
}

Conversation conversation(ChatFormat format, const Chat& chat) {
  check(!chat.messages.empty(), "a conversation without messages");
  switch (format) {
    case ChatFormat::none:
      break;
    case ChatFormat::chatml:
      return write_qwen(chat, "");
    case ChatFormat::qwen2_5:
      return write_qwen(chat, qwen_system);
    case ChatFormat::llama3:
      return write_llama3(chat);
    case ChatFormat::llama3_1:
      return write_llama3_1(chat);
    case ChatFormat::mistral:
      return write_mistral(chat);
    case ChatFormat::gemma:
      return write_gemma(chat);
  }
  check(false, "a conversation without a format");
  return {};
}

std::string prompt_of(ChatFormat format, const Chat& chat) {
  check_usage(!chat.messages.empty(), "has no message");
  check_usage(chat.messages.back().role != "assistant",
              "ends with a message of the assistant; end with a message to be answered");
  return conversation(format, chat).text + std::string(begin_of_answer(format));
}

std::string_view end_of_answer(ChatFormat format) {
  switch (format) {
    case ChatFormat::none:
      break;
    case ChatFormat::chatml:
    case ChatFormat::qwen2_5:
      return "<|im_end|>";
    case ChatFormat::llama3:
    case ChatFormat::llama3_1:
      return "<|eot_id|>";
    case ChatFormat::mistral:
      return "</s>";
    case ChatFormat::gemma:
      return "<end_of_turn>";
  }
  return "";
}

namespace {

using Json = nlohmann::ordered_json;

/// Python's repr(): the shortest decimal number that is read back as the same value.
std::string python_float(double value) {
  check_usage(std::abs(value) < 0x1p63, "has the number ", value,
              " in a tool or a call, beyond 64 bits; write it as a string");
  std::array<char, 64> buffer{};
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer.begin(), buffer.end(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string digits(buffer.data(), end.ptr);
  if (plain && digits.find('.') == std::string::npos) digits += ".0";
  return digits;
}

class PythonWriter {
 public:
  explicit PythonWriter(int indent) : indent_(indent) {}

  void write(const Json& value, int level) {
    if (value.is_object()) {
      write_parts(value, '{', '}', level, [&](const auto& member) {
        out_ += Json(member.key()).dump() + ": ";
        write(member.value(), level + 1);
      });
    } else if (value.is_array()) {
      write_parts(value, '[', ']', level,
                  [&](const auto& member) { write(member.value(), level + 1); });
    } else if (value.is_number_float()) {
      out_ += python_float(value.get<double>());
    } else {
      out_ += value.dump();
    }
  }
  std::string take() { return std::move(out_); }

 private:
  template <class WritePart>
  void write_parts(const Json& value, char open, char close, int level, const WritePart& part) {
    out_ += open;
    bool first = true;
    for (const auto& member : value.items()) {
      if (!first) out_ += indent_ > 0 ? "," : ", ";
      if (indent_ > 0) new_line(level + 1);
      first = false;
      part(member);
    }
    if (indent_ > 0 && !first) new_line(level);
    out_ += close;
  }
  void new_line(int level) {
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_ * level), ' ');
  }

  int indent_;
  std::string out_;
};

}  // namespace

std::string python_json(const Json& value, int indent) {
  PythonWriter writer(indent);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace trireme::data
