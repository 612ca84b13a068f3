// Instruction data to tokens. What counts is found from the ids: a prompt's tokens are those that
// it has in common with the whole text, so that a token with characters of both counts.
#include <trireme/data/instructions.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>

namespace trireme::data {
namespace {

/// Number of equal tokens at the beginning.
std::int64_t common(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

/// Appends a run up to token `end`.
void add_run(CountedTokens& out, std::int64_t& at, std::int64_t end, bool counted) {
  if (end > at) out.runs.emplace_back(end - at, counted);
  at = std::max(at, end);
}

enum class Kind : std::uint8_t { text, completion, messages };

Kind kind_of(const JsonLine& line) {
  const bool is_text = line.has("text");
  const bool completes = line.has("prompt") || line.has("completion");
  const bool talks = line.has("messages");
  if (is_text + completes + talks != 1)
    line.refuse(
        "needs exactly one of \"text\", \"messages\", and \"prompt\" with \"completion\"");
  return is_text ? Kind::text : completes ? Kind::completion : Kind::messages;
}

}  // namespace

const char* const instruction_form = R"({"prompt": "2 + 2 =", "completion": " 4"})";

InstructionEncoder::InstructionEncoder(const Tokenizer& tokenizer, ChatFormat format,
                                       bool special_tokens)
    : tokenizer_(tokenizer),
      format_(format),
      special_tokens_(special_tokens),
      plain_(tokenizer.encoder({false})),
      special_(tokenizer.encoder({true})) {
  for (const std::string_view token : special_tokens_of(format))
    check_usage(tokenizer.special_token(token) >= 0, "--chat ", name_of(format),
                " needs the special token ", token, ", which the tokenizer ", tokenizer.name(),
                " does not have; choose the format of the tokenizer's model, or add the token to "
                "its added_tokens");
}

std::vector<std::int32_t> InstructionEncoder::ids_of(std::string_view text, bool special_tokens) {
  std::vector<std::int32_t> ids;
  Encoder& encoder = special_tokens ? *special_ : *plain_;
  encoder.feed(text, ids);
  encoder.finish(ids);
  return ids;
}

CountedTokens InstructionEncoder::encode(const JsonLine& line) {
  switch (kind_of(line)) {
    case Kind::text:
      return encode_text(line);
    case Kind::completion:
      return encode_completion(line);
    case Kind::messages:
      return encode_messages(line);
  }
  return {};
}

CountedTokens InstructionEncoder::encode_text(const JsonLine& line) {
  const std::string& words = line.string("text");
  if (words.empty()) return {};
  CountedTokens out;
  out.ids = ids_of(words, special_tokens_);
  out.ids.push_back(tokenizer_.end_of_document());
  out.runs = {{std::ssize(out.ids), true}};
  out.text_bytes = std::ssize(words);
  return out;
}

CountedTokens InstructionEncoder::encode_completion(const JsonLine& line) {
  const std::string& prompt = line.string("prompt");
  const std::string words = prompt + line.string("completion");
  if (words.empty()) return {};
  CountedTokens out;
  out.ids = ids_of(words, special_tokens_);
  std::int64_t at = 0;
  add_run(out, at, common(ids_of(prompt, special_tokens_), out.ids), false);
  out.ids.push_back(tokenizer_.end_of_document());
  add_run(out, at, std::ssize(out.ids), true);
  out.text_bytes = std::ssize(words);
  return out;
}

std::vector<ChatMessage> InstructionEncoder::messages_of(const JsonLine& line) const {
  const auto& list = line.json()["messages"];
  constexpr const char* expected = "a list of objects with \"role\" and \"content\"";
  if (!list.is_array() || list.empty()) line.refuse("messages", expected);
  std::vector<ChatMessage> messages;
  for (const auto& entry : list) {
    const auto is_string = [&](const char* key) {
      return entry.is_object() && entry.contains(key) && entry[key].is_string();
    };
    if (!is_string("role") || !is_string("content"))
      line.refuse(text("message ", messages.size() + 1,
                       " of \"messages\" is not an object with the strings \"role\" and "
                       "\"content\""));
    messages.push_back({entry["role"].get<std::string>(), entry["content"].get<std::string>()});
    expect_plain(line, messages.back().content);
  }
  if (std::ranges::none_of(messages, [](const auto& m) { return m.role == "assistant"; }))
    throw UsageError(text(line.where(),
                          ": has no message of role 'assistant', so that nothing "
                          "counts in the loss; remove the line"));
  return messages;
}

/// A message must not end its turn by a token's name.
void InstructionEncoder::expect_plain(const JsonLine& line, const std::string& content) const {
  if (special_tokens_) return;
  for (const auto& [name, id] : tokenizer_.special_tokens())
    if (content.find(name) != std::string::npos)
      throw UsageError(text(line.where(), ": a message contains the name of the special token ",
                            name,
                            "; remove it, or give --special-tokens to encode it as the token"));
}

CountedTokens InstructionEncoder::encode_messages(const JsonLine& line) {
  if (format_ == ChatFormat::none)
    throw UsageError(text(line.where(),
                          ": has \"messages\"; choose their format with --chat "
                          "chatml, llama3, mistral or gemma"));
  const std::vector<ChatMessage> messages = messages_of(line);
  Conversation all;
  try {
    all = conversation(format_, messages);
  } catch (const UsageError& error) {
    throw UsageError(text(line.where(), ": ", error.what(),
                          "; correct the line, or choose another "
                          "--chat than ",
                          name_of(format_)));
  }
  CountedTokens out;
  out.ids = ids_of(all.text, true);
  std::int64_t at = 0;
  for (const auto& [begin, end] : all.answers) {
    const std::string_view whole = all.text;
    add_run(out, at, common(ids_of(whole.substr(0, begin), true), out.ids), false);
    add_run(out, at, std::ssize(ids_of(whole.substr(0, end), true)), true);
  }
  std::string decoded;
  tokenizer_.decode(out.ids, decoded);
  out.text_bytes = std::ssize(decoded);
  if (out.ids.back() != tokenizer_.end_of_document())
    out.ids.push_back(tokenizer_.end_of_document());
  add_run(out, at, std::ssize(out.ids), false);
  return out;
}

std::string text_of(const JsonLine& line) {
  switch (kind_of(line)) {
    case Kind::text:
      return line.string("text");
    case Kind::completion:
      return line.string("prompt") + line.string("completion");
    case Kind::messages:
      break;
  }
  throw UsageError(text(line.where(),
                        ": has \"messages\", but --train-bpe makes a tokenizer without "
                        "the special tokens of chat formats; give a tokenizer with --tokenizer"));
}

}  // namespace trireme::data
