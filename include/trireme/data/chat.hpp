#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Texts of conversations in the formats of published models, as their chat templates write them.
namespace trireme::data {

/// chatml: Qwen and others. llama3: Llama 3. mistral: version 3 of Mistral's instruct format.
/// gemma: Gemma 1 and 2.
enum class ChatFormat : std::uint8_t { none, chatml, llama3, mistral, gemma };

/// "chatml|llama3|mistral|gemma": ChatFormat::none for anything else.
ChatFormat chat_format(std::string_view name);
std::string_view name_of(ChatFormat format);
/// The names of the special tokens that a format writes.
std::span<const std::string_view> special_tokens_of(ChatFormat format);

struct ChatMessage {
  std::string role;
  std::string content;
};

/// A conversation as one text, and its parts [begin, end) that an assistant writes: each answer
/// with the token that ends it.
struct Conversation {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> answers;
};

/// Error with what the format cannot write, such as a role that it does not have.
Conversation conversation(ChatFormat format, const std::vector<ChatMessage>& messages);

/// The text before an assistant's answer to the messages, as apply_chat_template writes it with
/// add_generation_prompt. The last message is not the assistant's.
std::string prompt_of(ChatFormat format, const std::vector<ChatMessage>& messages);
/// The special token that ends an answer.
std::string_view end_of_answer(ChatFormat format);

}  // namespace trireme::data
