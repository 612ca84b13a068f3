// Converts instruction data to tokens. The tokens of a prompt are the common prefix of the prompt's
// ids and the whole text's ids: a token with characters of prompt and completion counts.
#include <trireme/data/instructions.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <iterator>
#include <vector>

namespace trireme::data {
namespace {

/// Length of the common prefix of two lists of ids.
std::int64_t common(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

void add_run(CountedTokens& out, std::int64_t& at, std::int64_t end, bool counted) {
  if (end > at) out.runs.emplace_back(end - at, counted);
  at = std::max(at, end);
}

enum class LineKind : std::uint8_t { text, completion, pair, messages };

LineKind kind_of(const JsonLine& line, bool with_images) {
  const bool is_text = line.has("text");
  const bool completes = line.has("prompt") || line.has("completion");
  const bool talks = line.has("messages");
  if (is_text + completes + talks == 0 && line.has("target")) {
    expect_known_members(line, {"source", "target"});
    return LineKind::pair;
  }
  if (is_text + completes + talks != 1)
    line.refuse(
        "needs exactly one of \"text\", \"messages\", \"prompt\" with \"completion\", and "
        "\"source\" with \"target\"");
  if (!with_images && !is_text && has_images(line))
    throw UsageError(text(line.where(), ": has the member \"",
                          line.has("images") ? "images" : "image",
                          "\", which is read with --images SIZE and --image-tokens N; give these "
                          "options, or remove the member"));
  if (is_text)
    expect_full_weight(line);  // other members describe the text
  else if (completes)
    expect_known_members(line, {"prompt", "completion", "image", "images"});
  else
    expect_known_members(line, {"messages", "tools", "image", "images"});
  return is_text ? LineKind::text : completes ? LineKind::completion : LineKind::messages;
}

std::pair<Conversation, bool> conversation_of(const JsonLine& line, const Chat& chat,
                                              ChatFormat format) {
  if (format == ChatFormat::none)
    throw UsageError(text(line.where(), ": has \"messages\"; choose their format with --chat: ",
                          join(chat_format_names(), ", ")));
  if (std::ranges::none_of(chat.messages,
                           [](const auto& m) { return m.role == "assistant" && m.counted; }))
    throw UsageError(text(line.where(),
                          ": has no message of role 'assistant' that counts in the loss; remove "
                          "the line"));
  try {
    return {conversation(format, chat), uses_tools(chat)};
  } catch (const UsageError& error) {
    throw UsageError(text(line.where(), ": ", error.what(),
                          "; correct the line, or choose another --chat than ", name_of(format)));
  }
}

/// The texts between names of tokens.
std::vector<std::string> split_at(std::string rest, const std::vector<std::string_view>& tokens) {
  std::vector<std::string> texts;
  while (true) {
    std::size_t first = rest.size();
    std::size_t length = 0;
    for (const std::string_view token : tokens)
      if (const std::size_t at = rest.find(token); at < first) {
        first = at;
        length = token.size();
      }
    if (first > 0) texts.push_back(rest.substr(0, first));
    if (length == 0) return texts;
    rest.erase(0, first + length);
  }
}

constexpr const char* plain_remedy =
    "remove it, or give --special-tokens to encode it as the token";

}  // namespace

const char* const instruction_form = R"({"prompt": "2 + 2 =", "completion": " 4"})";

InstructionEncoder::InstructionEncoder(const Tokenizer& tokenizer, ChatFormat format,
                                       bool special_tokens, const std::optional<ImageText>& images)
    : tokenizer_(tokenizer),
      format_(format),
      special_tokens_(special_tokens),
      images_(images),
      plain_(tokenizer.encoder({false})),
      special_(tokenizer.encoder({true})) {
  expect_special_tokens(tokenizer, format, false);
  if (!images) return;
  image_id_ = tokenizer.special_token(images->token);
  check_usage(image_id_ >= 0, "the tokenizer ", tokenizer.name(), " has no special token ",
              images->token,
              "; give the name of its image token with --image-token, or add the token to its "
              "added_tokens");
  check_usage(image_id_ != tokenizer.end_of_document(), "--image-token ", images->token,
              ": this token ends documents; give the name of another token");
}

std::vector<std::string> InstructionEncoder::place_images(const JsonLine& line,
                                                          std::string& words) const {
  if (!images_) return {};
  std::vector<std::string> paths = images_of(line);
  words = marked(line, std::move(words), std::ssize(paths), *images_);
  if (paths.empty()) return paths;
  expect_plain_text(line, with_marks_replaced(words, *images_, "\n"));
  words = with_marks_replaced(words, *images_, images_->begin + images_->token + images_->end);
  return paths;
}

/// UsageError for names of special tokens in a text that is encoded with them for its images' sake.
void InstructionEncoder::expect_plain_text(const JsonLine& line, const std::string& words) const {
  if (!special_tokens_) expect_plain({{{"user", words}}}, tokenizer_, line.where(), plain_remedy);
}

void InstructionEncoder::expect_no_mark(const JsonLine& line, const char* key) const {
  if (images_ && marks_in(line.string(key), *images_) > 0)
    throw UsageError(text(line.where(), ": \"", key, "\" contains ", images_->token,
                          ", but images are read only in \"prompt\", \"text\" and "
                          "\"messages\"; remove it"));
}

void InstructionEncoder::copy_image_tokens(const JsonLine& line, CountedTokens& document) const {
  if (!images_) return;
  const std::int64_t found = std::ranges::count(document.ids, image_id_);
  check_usage(found == std::ssize(document.images), line.where(), ": has ", document.images.size(),
              " images, but its tokens have ", images_->token, " ", found,
              " times; write the name of the token only at the places of images");
  if (found == 0) return;
  CountedTokens out;
  const auto add = [&](std::int64_t count, bool counted) {
    if (count == 0) return;
    if (!out.runs.empty() && out.runs.back().second == counted)
      out.runs.back().first += count;
    else
      out.runs.emplace_back(count, counted);
  };
  auto next = document.ids.begin();
  for (const auto& [count, counted] : document.runs)
    for (const auto end = next + count; next != end;) {
      const auto image = std::find(next, end, image_id_);
      out.ids.insert(out.ids.end(), next, image);
      add(image - next, counted);
      next = image;
      if (image == end) continue;
      out.ids.insert(out.ids.end(), static_cast<std::size_t>(images_->copies), image_id_);
      add(images_->copies, false);
      ++next;
    }
  document.ids = std::move(out.ids);
  document.runs = std::move(out.runs);
}

void expect_special_tokens(const Tokenizer& tokenizer, ChatFormat format, bool tools) {
  for (const std::string_view token : special_tokens_of(format, tools))
    check_usage(tokenizer.special_token(token) >= 0, "--chat ", name_of(format),
                tools ? " with tools" : "", " needs the special token ", token,
                ", which the tokenizer ", tokenizer.name(),
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
  CountedTokens document = encode_form(line);
  copy_image_tokens(line, document);
  return document;
}

CountedTokens InstructionEncoder::encode_form(const JsonLine& line) {
  switch (kind_of(line, images_.has_value())) {
    case LineKind::text:
      return encode_text(line);
    case LineKind::completion:
      return encode_completion(line);
    case LineKind::pair:
      return encode_pair(line);
    case LineKind::messages:
      return encode_messages(line);
  }
  return {};
}

std::int64_t InstructionEncoder::bytes_without_marks(const CountedTokens& document,
                                                     const std::string& words) const {
  const std::int64_t mark = images_ ? std::ssize(images_->token) : 0;
  return std::ssize(words) - std::ssize(document.images) * mark;
}

CountedTokens InstructionEncoder::encode_text(const JsonLine& line) {
  std::string words = line.string("text");
  CountedTokens out;
  out.images = place_images(line, words);
  if (words.empty()) return {};
  out.ids = ids_of(words, special_tokens_ || !out.images.empty());
  out.ids.push_back(tokenizer_.end_of_document());
  out.runs = {{std::ssize(out.ids), true}};
  out.text_bytes = bytes_without_marks(out, words);
  return out;
}

CountedTokens InstructionEncoder::encode_completion(const JsonLine& line) {
  expect_no_mark(line, "completion");
  std::string prompt = line.string("prompt");
  CountedTokens out;
  out.images = place_images(line, prompt);
  if (!out.images.empty()) expect_plain_text(line, line.string("completion"));
  const std::string words = prompt + line.string("completion");
  if (words.empty()) return {};
  const bool special = special_tokens_ || !out.images.empty();
  out.ids = ids_of(words, special);
  std::int64_t at = 0;
  add_run(out, at, common(ids_of(prompt, special), out.ids), false);
  out.ids.push_back(tokenizer_.end_of_document());
  add_run(out, at, std::ssize(out.ids), true);
  out.text_bytes = bytes_without_marks(out, words);
  return out;
}

CountedTokens InstructionEncoder::encode_pair(const JsonLine& line) {
  expect_no_mark(line, "source");
  expect_no_mark(line, "target");
  const std::string& source = line.string("source");
  const std::string& target = line.string("target");
  if (source.empty() && target.empty()) return {};
  CountedTokens out;
  std::int64_t at = 0;
  const auto add = [&](const std::string& words, bool counted) {
    std::ranges::copy(ids_of(words, special_tokens_), std::back_inserter(out.ids));
    out.ids.push_back(tokenizer_.end_of_document());
    add_run(out, at, std::ssize(out.ids), counted);
  };
  add(source, false);
  add(target, true);
  out.text_bytes = std::ssize(source) + std::ssize(target);
  return out;
}

CountedTokens InstructionEncoder::encode_messages(const JsonLine& line) {
  CountedTokens out;
  Chat chat = chat_of(line, images_ ? std::string_view(images_->token) : std::string_view());
  if (images_) out.images = mark_chat(line, chat, *images_);
  if (!special_tokens_) {
    Chat plain = chat;
    if (images_)
      for (ChatMessage& message : plain.messages)
        message.content = with_marks_replaced(message.content, *images_, "\n");
    expect_plain(plain, tokenizer_, line.where(), plain_remedy);
  }
  auto [all, with_tools] = conversation_of(line, chat, format_);
  if (images_) all = with_surroundings(all, *images_);
  if (with_tools) expect_special_tokens(tokenizer_, format_, true);
  out.ids = ids_of(all.text, true);
  std::int64_t at = 0;
  for (const auto& [begin, end] : all.answers) {
    const std::string_view whole = all.text;
    add_run(out, at, common(ids_of(whole.substr(0, begin), true), out.ids), false);
    add_run(out, at, std::ssize(ids_of(whole.substr(0, end), true)), true);
  }
  std::string decoded;
  tokenizer_.decode(out.ids, decoded);
  out.text_bytes = bytes_without_marks(out, decoded);
  if (out.ids.back() != tokenizer_.end_of_document())
    out.ids.push_back(tokenizer_.end_of_document());
  add_run(out, at, std::ssize(out.ids), false);
  return out;
}

std::vector<std::string> texts_of(const JsonLine& line, ChatFormat format,
                                  const std::optional<ImageText>& images) {
  std::vector<std::string_view> tokens;
  if (images) tokens.push_back(images->token);
  switch (kind_of(line, images.has_value())) {
    case LineKind::text:
      return split_at(line.string("text"), tokens);
    case LineKind::completion:
      return split_at(line.string("prompt") + line.string("completion"), tokens);
    case LineKind::pair:
      return {line.string("source"), line.string("target")};
    case LineKind::messages:
      break;
  }
  const Chat chat = chat_of(line, images ? std::string_view(images->token) : std::string_view());
  std::ranges::copy(special_tokens_of(format, true), std::back_inserter(tokens));
  return split_at(conversation_of(line, chat, format).first.text, tokens);
}

namespace {

constexpr std::int64_t most_documents = 256;
constexpr std::int64_t most_tokens = 1 << 20;

}  // namespace

std::set<std::int64_t> answer_ends(const TokenSource& source, const Tokenizer& tokenizer) {
  std::set<std::int64_t> ends;
  if (!source.has_mask()) return ends;
  std::vector<std::int64_t> offsets(
      static_cast<std::size_t>(std::min(source.documents(), most_documents)) + 1);
  source.read_document_offsets(0, offsets);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(offsets.back(), most_tokens)));
  source.read(0, ids);
  std::vector<std::int32_t> counted = ids;
  source.mask(0, counted);
  // An answer ends with a counted token that an uncounted token follows.
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    if (counted[i] != uncounted && counted[i + 1] == uncounted) ends.insert(ids[i]);
  ends.erase(tokenizer.end_of_document());
  std::erase_if(ends, [special = tokenizer.special_tokens()](std::int64_t id) {
    return std::ranges::none_of(special, [id](const auto& token) { return token.second == id; });
  });
  return ends;
}

}  // namespace trireme::data
