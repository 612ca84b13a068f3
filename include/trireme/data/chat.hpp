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

/// Chat formats. docs/token_files.md names the published template of each format.
enum class ChatFormat : std::uint8_t { none, chatml, qwen2_5, llama3, llama3_1, mistral, gemma };

/// The format of a name such as "chatml"; ChatFormat::none for an unknown name.
ChatFormat chat_format(std::string_view name);
std::string_view name_of(ChatFormat format);
/// Names of all formats except ChatFormat::none, for options and messages.
std::vector<std::string> chat_format_names();
/// Names of the special tokens that a format writes. `tools`: with the special tokens for tools.
std::vector<std::string_view> special_tokens_of(ChatFormat format, bool tools);

/// A call of a function by an assistant.
struct ToolCall {
  std::string id;  ///< empty if the call has no id
  /// {"name": string, "arguments": object}; the members keep the order of the data.
  nlohmann::ordered_json function;
};

struct ChatMessage {
  std::string role;
  std::string content;
  std::vector<ToolCall> calls = {};
  std::string call_id = {};  ///< id of the call whose result this message is; "": none
  bool counted = true;       ///< whether an assistant's message counts in the loss
};

/// A conversation, and the descriptions of the functions that the assistant may call.
struct Chat {
  std::vector<ChatMessage> messages;
  std::vector<nlohmann::ordered_json> tools = {};
  /// Paths of the messages' image parts in order; "" for a part without a path.
  std::vector<std::string> images = {};
};

/// Whether a conversation has tools, calls of tools or results of calls.
bool uses_tools(const Chat& chat);

/// A conversation as one text, and the byte ranges [begin, end) of the assistant's answers that
/// count in the loss, each with the token that ends the answer.
struct Conversation {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> answers;
};

/// Writes a chat in a format, which must not be ChatFormat::none. UsageError for content that the
/// format cannot represent, such as an unknown role. Error if the chat has no messages.
Conversation conversation(ChatFormat format, const Chat& chat);

/// The text before the assistant's answer, as apply_chat_template writes it with
/// add_generation_prompt. UsageError as in conversation(), or if the last message is the
/// assistant's.
std::string prompt_of(ChatFormat format, const Chat& chat);
/// The special token that ends an answer; "" for ChatFormat::none.
std::string_view end_of_answer(ChatFormat format);

/// JSON text of a value, as Python's json.dumps(value, ensure_ascii=False, indent=indent) writes
/// it; `indent` 0: on one line. UsageError for a floating-point number of magnitude 2^63 or more.
std::string python_json(const nlohmann::ordered_json& value, int indent = 0);

}  // namespace trireme::data
