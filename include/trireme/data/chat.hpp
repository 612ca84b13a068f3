#pragma once

/// Texts of conversations in the formats of published chat templates.
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::data {

/// docs/token_files.md names the published template of each format and lists the differences.
enum class ChatFormat : std::uint8_t { none, chatml, qwen2_5, llama3, llama3_1, mistral, gemma };

/// The format of a name such as "chatml"; ChatFormat::none for anything else.
ChatFormat chat_format(std::string_view name);
std::string_view name_of(ChatFormat format);
/// All names, for options and messages.
std::vector<std::string> chat_format_names();
/// Names of the special tokens that a format writes, with or without the tokens for tools.
std::vector<std::string_view> special_tokens_of(ChatFormat format, bool tools);

/// A function that an assistant calls.
struct ToolCall {
  std::string id;  ///< empty if the call has no id
  /// {"name": string, "arguments": object}, in the order of the data.
  nlohmann::ordered_json function;
};

struct ChatMessage {
  std::string role;
  std::string content;
  std::vector<ToolCall> calls = {};
  std::string call_id = {};  ///< the call whose result this message is
  bool counted = true;       ///< whether an assistant's message counts in the loss
};

/// A conversation, and the descriptions of the functions that the assistant may call.
struct Chat {
  std::vector<ChatMessage> messages;
  std::vector<nlohmann::ordered_json> tools = {};
};

/// Whether a conversation has tools, calls or their results.
bool uses_tools(const Chat& chat);

/// A conversation as one text, and the parts [begin, end) that an assistant writes and that count:
/// each answer with the token that ends it.
struct Conversation {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> answers;
};

/// UsageError that names the content that the format cannot represent, such as an unknown role.
Conversation conversation(ChatFormat format, const Chat& chat);

/// The text before an assistant's answer to the messages, as apply_chat_template writes it with
/// add_generation_prompt. UsageError if the last message is the assistant's.
std::string prompt_of(ChatFormat format, const Chat& chat);
/// The special token that ends an answer.
std::string_view end_of_answer(ChatFormat format);

/// JSON as Python's json.dumps(value, ensure_ascii=False) writes it, which chat templates use.
/// `indent` > 0: one member per line, indented by this many spaces per level. UsageError for a
/// number beyond 64 bits, because its digits are lost in the parsed value.
std::string python_json(const nlohmann::ordered_json& value, int indent = 0);

}  // namespace trireme::data
