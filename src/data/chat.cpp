// Names, special tokens and prompts of the chat formats.
#include <trireme/data/chat.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/chat_formats.hpp>

#include <algorithm>
#include <array>

namespace trireme::data {
namespace {

constexpr std::array formats{ChatFormat::chatml,   ChatFormat::qwen2_5, ChatFormat::llama3,
                             ChatFormat::llama3_1, ChatFormat::mistral, ChatFormat::gemma};

constexpr std::string_view qwen_system =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

/// The text that add_generation_prompt appends.
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
  switch (format) {
    case ChatFormat::none:
      return "none";
    case ChatFormat::chatml:
      return "chatml";
    case ChatFormat::qwen2_5:
      return "qwen2.5";
    case ChatFormat::llama3:
      return "llama3";
    case ChatFormat::llama3_1:
      return "llama3.1";
    case ChatFormat::mistral:
      return "mistral";
    case ChatFormat::gemma:
      return "gemma";
  }
  return "";
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

}  // namespace trireme::data
