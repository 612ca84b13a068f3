// The chat formats: what the Jinja templates of the models' repositories write.
#include <trireme/data/chat.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/unicode.hpp>

#include <algorithm>
#include <array>

namespace trireme::data {
namespace {

constexpr std::array<std::string_view, 2> chatml_tokens{"<|im_start|>", "<|im_end|>"};
constexpr std::array<std::string_view, 4> llama3_tokens{"<|begin_of_text|>", "<|start_header_id|>",
                                                        "<|end_header_id|>", "<|eot_id|>"};
constexpr std::array<std::string_view, 4> mistral_tokens{"<s>", "</s>", "[INST]", "[/INST]"};
constexpr std::array<std::string_view, 3> gemma_tokens{"<bos>", "<start_of_turn>", "<end_of_turn>"};

/// Jinja's `trim`.
std::string_view trimmed(std::string_view text) {
  for (std::size_t at = 0; !text.empty(); at = 0) {
    if (!is_space(next_character(text, at))) break;
    text.remove_prefix(at);
  }
  while (!text.empty()) {
    std::string_view shorter = text;
    if (!is_space(take_last_character(shorter))) break;
    text = shorter;
  }
  return text;
}

void expect_role(const ChatMessage& message, std::span<const std::string_view> roles) {
  if (std::ranges::find(roles, message.role) != roles.end()) return;
  std::string known;
  for (const std::string_view role : roles)
    known += (known.empty() ? "" : ", ") + std::string(role);
  throw UsageError(text("has a message of role '", message.role, "', expected one of ", known));
}

/// User and assistant in turn, the user first.
void expect_turns(std::span<const ChatMessage> messages) {
  constexpr std::array<std::string_view, 2> roles{"user", "assistant"};
  for (std::size_t i = 0; i < messages.size(); ++i) {
    expect_role(messages[i], roles);
    check_usage(messages[i].role == roles.at(i % 2), "has a message of role '", messages[i].role,
                "' where one of '", roles.at(i % 2),
                "' must follow: in this chat format user and assistant take turns");
  }
}

class Writer {
 public:
  void add(std::string_view part) { out_.text += part; }
  /// An answer and the token that ends it.
  void add_answer(std::string_view words, std::string_view end) {
    const std::size_t begin = out_.text.size();
    add(words);
    add(end);
    out_.answers.emplace_back(begin, out_.text.size());
  }
  void add_part(const ChatMessage& message, std::string_view words, std::string_view end) {
    if (message.role == "assistant") return add_answer(words, end);
    add(words);
    add(end);
  }
  Conversation take() { return std::move(out_); }

 private:
  Conversation out_;
};

Conversation chatml(const std::vector<ChatMessage>& messages) {
  constexpr std::array<std::string_view, 4> roles{"system", "user", "assistant", "tool"};
  Writer out;
  for (const ChatMessage& m : messages) {
    expect_role(m, roles);
    out.add("<|im_start|>" + m.role + "\n");
    out.add_part(m, m.content, "<|im_end|>");
    out.add("\n");
  }
  return out.take();
}

Conversation llama3(const std::vector<ChatMessage>& messages) {
  constexpr std::array<std::string_view, 5> roles{"system", "user", "assistant", "tool", "ipython"};
  Writer out;
  out.add("<|begin_of_text|>");
  for (const ChatMessage& m : messages) {
    expect_role(m, roles);
    out.add("<|start_header_id|>" + m.role + "<|end_header_id|>\n\n");
    out.add_part(m, trimmed(m.content), "<|eot_id|>");
  }
  return out.take();
}

/// A system message becomes the beginning of the first user's.
Conversation mistral(const std::vector<ChatMessage>& messages) {
  std::span<const ChatMessage> turns(messages);
  std::string system;
  if (turns.front().role == "system") {
    system = turns.front().content + "\n\n";
    turns = turns.subspan(1);
  }
  check_usage(!turns.empty(), "has a system message only");
  expect_turns(turns);
  Writer out;
  out.add("<s>");
  for (const ChatMessage& m : turns) {
    if (m.role == "assistant") {
      out.add_answer(" " + m.content, "</s>");
      continue;
    }
    out.add("[INST] " + system + m.content + "[/INST]");
    system.clear();
  }
  return out.take();
}

Conversation gemma(const std::vector<ChatMessage>& messages) {
  expect_turns(messages);
  Writer out;
  out.add("<bos>");
  for (const ChatMessage& m : messages) {
    out.add("<start_of_turn>" + std::string(m.role == "assistant" ? "model" : m.role) + "\n");
    out.add_part(m, trimmed(m.content), "<end_of_turn>");
    out.add("\n");
  }
  return out.take();
}

}  // namespace

ChatFormat chat_format(std::string_view name) {
  for (const auto format :
       {ChatFormat::chatml, ChatFormat::llama3, ChatFormat::mistral, ChatFormat::gemma})
    if (name_of(format) == name) return format;
  return ChatFormat::none;
}

std::string_view name_of(ChatFormat format) {
  switch (format) {
    case ChatFormat::none:
      return "none";
    case ChatFormat::chatml:
      return "chatml";
    case ChatFormat::llama3:
      return "llama3";
    case ChatFormat::mistral:
      return "mistral";
    case ChatFormat::gemma:
      return "gemma";
  }
  return "";
}

std::span<const std::string_view> special_tokens_of(ChatFormat format) {
  switch (format) {
    case ChatFormat::none:
      return {};
    case ChatFormat::chatml:
      return chatml_tokens;
    case ChatFormat::llama3:
      return llama3_tokens;
    case ChatFormat::mistral:
      return mistral_tokens;
    case ChatFormat::gemma:
      return gemma_tokens;
  }
  return {};
}

Conversation conversation(ChatFormat format, const std::vector<ChatMessage>& messages) {
  check(!messages.empty(), "a conversation without messages");
  switch (format) {
    case ChatFormat::none:
      break;
    case ChatFormat::chatml:
      return chatml(messages);
    case ChatFormat::llama3:
      return llama3(messages);
    case ChatFormat::mistral:
      return mistral(messages);
    case ChatFormat::gemma:
      return gemma(messages);
  }
  check(false, "a conversation without a format");
  return {};
}

std::string prompt_of(ChatFormat format, const std::vector<ChatMessage>& messages) {
  check_usage(messages.back().role != "assistant",
              "ends with a message of the assistant; end with a message to be answered");
  std::string words = conversation(format, messages).text;
  switch (format) {
    case ChatFormat::none:
    case ChatFormat::mistral:
      break;
    case ChatFormat::chatml:
      return words + "<|im_start|>assistant\n";
    case ChatFormat::llama3:
      return words + "<|start_header_id|>assistant<|end_header_id|>\n\n";
    case ChatFormat::gemma:
      return words + "<start_of_turn>model\n";
  }
  return words;
}

std::string_view end_of_answer(ChatFormat format) {
  switch (format) {
    case ChatFormat::none:
      break;
    case ChatFormat::chatml:
      return "<|im_end|>";
    case ChatFormat::llama3:
      return "<|eot_id|>";
    case ChatFormat::mistral:
      return "</s>";
    case ChatFormat::gemma:
      return "<end_of_turn>";
  }
  return "";
}

}  // namespace trireme::data
