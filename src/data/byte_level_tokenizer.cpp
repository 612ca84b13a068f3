// Byte-level BPE. The encoder streams text through four stages: added tokens in raw text, added
// tokens in normalized text, words, merges.
#include <trireme/data/tokenizer_json.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/base/json_mistake.hpp>
#include <trireme/data/added_tokens.hpp>
#include <trireme/data/bpe_words.hpp>
#include <trireme/data/byte_alphabet.hpp>
#include <trireme/data/literal_splitter.hpp>
#include <trireme/data/word_splitter.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <sstream>
#include <utility>

namespace trireme::data {
namespace {

/// Rules for splitting a text into words.
struct Splitting {
  /// Each pattern splits the words of the previous pattern. The text between two matches is also a
  /// word. Without patterns, the whole text is one word.
  std::vector<std::string> patterns;
  bool add_prefix_space = false;  ///< put a space before a text that does not begin with a space
};

/// Reads the pre-tokenizer of a tokenizer for which is_byte_level() is true: ByteLevel, or a
/// Sequence of isolating Splits and a ByteLevel.
Splitting read_splitting(const JsonNode& node) {
  Splitting found;
  const auto read_byte_level = [&](const JsonNode& part) {
    found.add_prefix_space = part["add_prefix_space"].flag(true);
    if (part["use_regex"].flag(true)) found.patterns.emplace_back(gpt2_pattern);
  };
  if (node["type"].json == "ByteLevel") {
    read_byte_level(node);
    return found;
  }
  const JsonNode list = node["pretokenizers"];
  const std::size_t size = list.list_size(16, "a list of at most 16 parts");
  for (std::size_t i = 0; i + 1 < size; ++i)
    found.patterns.push_back(list[i]["pattern"]["Regex"].string());
  read_byte_level(list[size - 1]);
  return found;
}

struct Parts {
  TokenNames names;
  std::unique_ptr<BpeWords> model;
  std::vector<AddedToken> added;
  std::vector<std::unique_ptr<WordPattern>> patterns;
  bool add_prefix_space = false;
  std::string where;
};

class ByteLevelEncoder final : public Encoder {
 public:
  ByteLevelEncoder(const Parts& parts, const EncodeOptions& options)
      : raw_(literals_of(parts.added, options, false)),
        normalized_(literals_of(parts.added, options, true)),
        splitter_(parts.patterns, parts.add_prefix_space),
        model_(parts.model->byte_encoder(parts.where)) {}

  void feed(std::string_view bytes, std::vector<std::int32_t>& out) override {
    raw_.feed(
        bytes, [&](std::string_view text) { feed_second(text, out); },
        [&](std::int32_t id) { end_both(id, out); });
  }
  void finish(std::vector<std::int32_t>& out) override {
    raw_.finish([&](std::string_view text) { feed_second(text, out); },
                [&](std::int32_t id) { end_both(id, out); });
    end_both(-1, out);
  }

 private:
  void feed_second(std::string_view bytes, std::vector<std::int32_t>& out) {
    normalized_.feed(
        bytes, [&](std::string_view text) { feed_words(text, out); },
        [&](std::int32_t id) { end_words(id, out); });
  }
  /// Ends the text before the added token `id`, and appends this id. -1: ends the document.
  void end_both(std::int32_t id, std::vector<std::int32_t>& out) {
    normalized_.finish([&](std::string_view text) { feed_words(text, out); },
                       [&](std::int32_t found) { end_words(found, out); });
    end_words(id, out);
  }
  void feed_words(std::string_view text, std::vector<std::int32_t>& out) {
    splitter_.feed(text, [&](std::string_view word) { model_->run(word, {}, out); });
  }
  void end_words(std::int32_t id, std::vector<std::int32_t>& out) {
    splitter_.finish([&](std::string_view word) { model_->run(word, {}, out); });
    if (id >= 0) out.push_back(id);
  }

  LiteralSplitter raw_;
  LiteralSplitter normalized_;
  WordSplitter splitter_;
  std::unique_ptr<WordEncoder> model_;
};

class ByteLevelTokenizer final : public Tokenizer {
 public:
  ByteLevelTokenizer(const JsonNode& top, const std::string& end_of_document,
                     const std::string& where);

  const std::string& name() const override { return name_; }
  std::int64_t vocabulary() const override { return std::ssize(tokens_); }
  std::int32_t end_of_document() const override { return end_of_document_; }
  std::vector<std::pair<std::string, std::int32_t>> special_tokens() const override {
    return data::special_tokens(parts_.added);
  }
  std::unique_ptr<Encoder> encoder(const EncodeOptions& options) const override {
    return std::make_unique<ByteLevelEncoder>(parts_, options);
  }
  void decode(std::span<const std::int32_t> ids, std::string& out) const override;

 private:
  void make_name(const Splitting& splitting);

  Parts parts_;
  std::vector<std::string> tokens_;  // the bytes of each id; "" for an unused id
  std::string name_;
  std::int32_t end_of_document_ = 0;
};

ByteLevelTokenizer::ByteLevelTokenizer(const JsonNode& top, const std::string& end_of_document,
                                       const std::string& where) {
  parts_.where = where;
  parts_.added = read_added_tokens(top["added_tokens"]);
  for (const AddedToken& token : parts_.added)
    if (token.special) parts_.names.hide(token.content);
  parts_.model = std::make_unique<BpeWords>(top["model"], parts_.names, true);
  tokens_ = names_with(parts_.names, parts_.added, top["added_tokens"]);
  std::sort(parts_.added.begin(), parts_.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (std::string& token : tokens_) token = bytes_of_characters(token).value_or(token);
  for (const AddedToken& token : parts_.added)
    tokens_[static_cast<std::size_t>(token.id)] = token.content;
  end_of_document_ = find_end_of_document(parts_.added, end_of_document, where);
  const Splitting splitting = read_splitting(top["pre_tokenizer"]);
  parts_.add_prefix_space = splitting.add_prefix_space;
  for (const auto& pattern : splitting.patterns)
    parts_.patterns.push_back(
        std::make_unique<WordPattern>(pattern, where + ": splitting pattern"));
  make_name(splitting);
}

/// Sets name_ to "bpe-" and a checksum of all properties on which ids depend: the same tokenizer in
/// another file format has the same name.
void ByteLevelTokenizer::make_name(const Splitting& splitting) {
  Checksum sum;
  const auto add = [&sum](std::string_view bytes) {
    const std::uint64_t size = bytes.size();
    sum.update(&size, sizeof size);
    sum.update(bytes.data(), bytes.size());
  };
  for (const auto& token : tokens_) add(token);
  add("merges");
  for (const auto& merge : parts_.model->list) sum.update(&merge, sizeof merge);
  add("added");
  add_to(sum, parts_.added);
  add("patterns");
  for (const auto& pattern : splitting.patterns) add(pattern);
  const std::int32_t flags[]{splitting.add_prefix_space, parts_.model->ignore_merges};
  sum.update(flags, sizeof flags);
  name_ = "bpe-" + sum.digest().hex();
}

void ByteLevelTokenizer::decode(std::span<const std::int32_t> ids, std::string& out) const {
  for (const std::int32_t id : ids) {
    check(id >= 0 && id < vocabulary(), "token id ", id, " is outside the ", vocabulary(),
          " ids of ", parts_.where);
    if (id != end_of_document_) out += tokens_[static_cast<std::size_t>(id)];
  }
}

/// Whether a splitter makes words of a regular expression's matches and of the text between
/// matches.
bool is_isolating(const JsonNode& splitter) {
  const nlohmann::json& invert = splitter["invert"].json;
  return splitter["type"].json == "Split" && splitter["pattern"]["Regex"].json.is_string() &&
         splitter["behavior"].json == "Isolated" && (invert.is_null() || invert == false);
}

}  // namespace

bool is_byte_level(const JsonNode& top) {
  const JsonNode model = top["model"];
  const JsonNode decoder = top["decoder"];
  const JsonNode splitter = top["pre_tokenizer"];
  if (model["type"].json != "BPE" || model["byte_fallback"].json == true) return false;
  if (!top["normalizer"].json.is_null()) return false;
  if (!decoder.json.is_null() && decoder["type"].json != "ByteLevel") return false;
  if (splitter["type"].json == "ByteLevel") return true;
  const JsonNode list = splitter["pretokenizers"];
  if (splitter["type"].json != "Sequence" || !list.json.is_array() || list.json.empty())
    return false;
  const std::size_t last = list.json.size() - 1;
  for (std::size_t i = 0; i < last; ++i)
    if (!is_isolating(list[i])) return false;
  return list[last]["type"].json == "ByteLevel" &&
         (last == 0 || list[last]["add_prefix_space"].json == false);
}

std::unique_ptr<Tokenizer> make_byte_level_tokenizer(const JsonNode& top,
                                                     const std::string& end_of_document,
                                                     const std::string& path) {
  return std::make_unique<ByteLevelTokenizer>(top, end_of_document, path);
}

std::unique_ptr<Tokenizer> read_bpe_folder(const std::string& folder,
                                           const std::string& end_of_document) {
  const std::string vocab_path = folder + "/vocab.json";
  const std::string merges_path = folder + "/merges.txt";
  const std::string content = io::read_text_file(vocab_path, file_limit_bytes);
  nlohmann::json vocab = nlohmann::json::parse(content, nullptr, false);
  check_usage(!vocab.is_discarded(), vocab_path, ": is not JSON: ", json_mistake(content));
  if (!vocab.is_object()) JsonNode{vocab, vocab_path}.refuse("an object of tokens and ids");
  for (const auto& [token, id] : vocab.items()) JsonNode{id, vocab_path + ": " + token}.id();
  nlohmann::json merges = nlohmann::json::array();
  std::istringstream lines(io::read_text_file(merges_path, file_limit_bytes));
  std::string line;
  for (std::int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    check_usage(space != std::string::npos && line.find(' ', space + 1) == std::string::npos,
                merges_path, ":", number, ": '", line, "' is not two tokens with a space between");
    const std::string left = line.substr(0, space);
    const std::string right = line.substr(space + 1);
    for (const std::string& token : {left, right, left + right})
      check_usage(vocab.contains(token), merges_path, ":", number, ": token '", token,
                  "' is not in the vocabulary");
    merges.push_back({left, right});
  }
  nlohmann::json added = nlohmann::json::array();
  if (const auto end = vocab.find("<|endoftext|>"); end != vocab.end())
    added.push_back({{"id", *end}, {"content", end.key()}, {"special", true}});
  nlohmann::json top = {{"added_tokens", std::move(added)},
                        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                        {"model", {{"type", "BPE"}}}};
  top["model"]["vocab"] = std::move(vocab);
  top["model"]["merges"] = std::move(merges);
  return make_byte_level_tokenizer({top, vocab_path + ": "}, end_of_document, folder);
}

}  // namespace trireme::data
