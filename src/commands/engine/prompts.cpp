// The prompts of `trireme generate`, and the tokens before texts without context.
#include <trireme/commands/prompts.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/chat_lines.hpp>
#include <trireme/data/json_lines.hpp>
#include <trireme/io/text_reader.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace trireme::commands {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  io::TextReader reader(path);
  std::string content;
  std::array<char, 1 << 16> block{};
  while (const std::size_t n = reader.read(block)) content.append(block.data(), n);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    lines.push_back(content.substr(begin, end - begin));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    begin = end + 1;
  }
  return lines;
}

Prompt question(std::string words, std::string where) {
  return {words, {{{"user", std::move(words)}}}, std::move(where)};
}

/// UsageError for unknown members. An answer in the line does not change the prompt.
void expect_prompt_members(const data::JsonLine& line) {
  data::expect_known_members(line, {"prompt", "messages", "tools", "completion", "answer",
                                    "answers", "reference", "references", "label", "gold"});
}

Prompt prompt_of(const data::JsonLine& line, bool chat) {
  if (!line.has("messages")) {
    Prompt prompt = question(line.string("prompt"), line.where());
    if (line.has("tools")) line.refuse("has \"tools\" without \"messages\"");
    expect_prompt_members(line);
    return prompt;
  }
  if (line.has("prompt")) line.refuse("has both \"prompt\" and \"messages\"");
  if (!chat)
    throw UsageError(text(line.where(), ": has \"messages\"; choose their format with --chat: ",
                          join(data::chat_format_names(), ", ")));
  expect_prompt_members(line);
  data::Chat messages = data::chat_of(line);
  std::string words = messages.messages.back().content;
  return {std::move(words), std::move(messages), line.where()};
}

std::string name_of(const data::Tokenizer& tokenizer, std::int32_t id) {
  for (const auto& [name, known] : tokenizer.special_tokens())
    if (known == id) return name;
  return id == tokenizer.end_of_document() ? "the end-of-document token" : text("token ", id);
}

}  // namespace

std::vector<Prompt> prompts_of(const GenerateOptions& options) {
  const std::string& path = options.prompts;
  if (path.empty()) return {question(options.prompt, "the prompt")};
  const bool chat = data::chat_format(options.chat) != data::ChatFormat::none;
  std::vector<Prompt> prompts;
  if (path.ends_with(".jsonl") || path.ends_with(".jsonl.gz")) {
    data::read_json_lines(
        path, R"({"prompt": "Once upon a time"})",
        [&](const data::JsonLine& line) { prompts.push_back(prompt_of(line, chat)); });
  } else {
    for (std::string& line : lines_of(path))
      prompts.push_back(question(std::move(line), text(path, ":", prompts.size() + 1)));
  }
  check_usage(!prompts.empty(), path, ": has no prompts; write one per line");
  return prompts;
}

std::int32_t prefix_token(const data::Tokenizer& tokenizer, const std::string& name) {
  if (name.empty() || name == "end-of-document") return tokenizer.end_of_document();
  const std::int32_t id = tokenizer.special_token(name);
  check_usage(id >= 0, "--prefix ", name, ": the deck's tokenizer ", tokenizer.name(),
              " has no such special token; give one of its special tokens, or end-of-document");
  return id;
}

std::vector<std::int32_t> ids_before_prompt(const data::Tokenizer& tokenizer,
                                            const std::string& prefix) {
  if (prefix.empty()) return tokenizer.before_text();
  if (prefix == "none") return {};
  return {prefix_token(tokenizer, prefix)};
}

std::string describe_prefix(const data::Tokenizer& tokenizer, const std::string& prefix) {
  std::vector<std::string> names;
  for (const std::int32_t id : ids_before_prompt(tokenizer, prefix))
    names.push_back(name_of(tokenizer, id));
  const char* cause = prefix.empty() ? " (the tokenizer's post_processor)" : " (--prefix)";
  if (!names.empty()) return text("each prompt follows ", join(names, " "), cause);
  return text("no token is put before a prompt",
              prefix.empty() ? "; choose one with --prefix" : " (--prefix)");
}

}  // namespace trireme::commands
