// Tokenizers from a tokenizer.json, and from GPT-2's vocab.json and merges.txt: byte-level BPE,
// tokenizers made of parts, and the tokens before a text.
#include <trireme/data/tokenizer_json.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/base/json_mistake.hpp>
#include <trireme/data/added_tokens.hpp>
#include <trireme/data/bpe_words.hpp>
#include <trireme/data/decode_steps.hpp>
#include <trireme/data/document_decoder.hpp>
#include <trireme/data/json_node.hpp>
#include <trireme/data/literal_splitter.hpp>
#include <trireme/data/text_step.hpp>
#include <trireme/data/token_model.hpp>
#include <trireme/data/token_names.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/utf8_repair.hpp>
#include <trireme/data/word_splitter.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme::data {
namespace {

// Byte-level BPE. The encoder streams text through four stages: added tokens in raw text, added
// tokens in normalized text, words, merges.

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

struct ByteLevelParts {
  TokenNames names;
  std::unique_ptr<BpeWords> model;
  std::vector<AddedToken> added;
  std::vector<std::unique_ptr<WordPattern>> patterns;
  bool add_prefix_space = false;
  std::string where;
};

class ByteLevelEncoder final : public Encoder {
 public:
  ByteLevelEncoder(const ByteLevelParts& parts, const EncodeOptions& options)
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

  ByteLevelParts parts_;
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

/// Whether a tokenizer.json is a byte-level BPE (Radford et al. 2019) that has no normalizer and
/// splits text only by patterns.
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

// Tokenizers made of parts. Text streams through added tokens in raw text, the normalizer, added
// tokens in normalized text, the pre-tokenizer and the model.

struct PipelineParts {
  TextSteps normalizer;
  TextSteps pre_tokenizer;
  TokenNames model_names;
  std::unique_ptr<TokenModel> model;
  std::vector<AddedToken> added;  // tokens with flag `normalized` have normalized contents
};

class PipelineEncoder final : public Encoder {
 public:
  PipelineEncoder(const PipelineParts& parts, const EncodeOptions& options)
      : parts_(parts),
        raw_(literals_of(parts.added, options, false)),
        normalized_(literals_of(parts.added, options, true)),
        words_(*this),
        found_(*this),
        pre_tokenizer_(parts.pre_tokenizer, words_),
        normalizer_(parts.normalizer, found_),
        model_(parts.model->encoder()) {
    uses_origin_ = !parts.pre_tokenizer.empty() && parts.pre_tokenizer.front()->uses_origin();
  }

  void feed(std::string_view bytes, std::vector<std::int32_t>& out) override {
    out_ = &out;
    repair_.feed(bytes, [&](std::string_view text) { feed_raw(text); });
  }
  void finish(std::vector<std::int32_t>& out) override {
    out_ = &out;
    repair_.finish([&](std::string_view text) { feed_raw(text); });
    raw_.finish([&](std::string_view text) { normalizer_.piece(text, false); },
                [&](std::int32_t id) { end_section(id); });
    normalizer_.piece({}, true);
    begun_ = false;
  }

 private:
  void feed_raw(std::string_view text) {
    if (!begun_ && uses_origin_) pre_tokenizer_.set_origin(keeps_first(text));
    begun_ = true;
    raw_.feed(
        text, [&](std::string_view part) { normalizer_.piece(part, false); },
        [&](std::int32_t id) { end_section(id); });
  }
  /// Whether the normalizer's output for the first character of `text` is not empty.
  bool keeps_first(std::string_view text) {
    if (parts_.normalizer.empty()) return true;
    std::size_t end = 0;
    const char32_t first = next_character(text, end);
    const auto [known, is_new] = kept_.try_emplace(first, false);
    if (is_new) known->second = !run_steps(parts_.normalizer, text.substr(0, end)).empty();
    return known->second;
  }
  /// Ends the text before the added token `id`, and appends this id.
  void end_section(std::int32_t id) {
    normalizer_.piece({}, true);
    out_->push_back(id);
  }

  /// Searches normalized text for added tokens.
  struct Found final : TextSink {
    explicit Found(PipelineEncoder& encoder) : e(encoder) {}
    void piece(std::string_view text, bool last) override {
      const auto use = [&](std::string_view part) { e.pre_tokenizer_.piece(part, false); };
      const auto found = [&](std::int32_t id) {
        e.pre_tokenizer_.piece({}, true);
        e.out_->push_back(id);
      };
      if (!text.empty()) e.normalized_.feed(text, use, found);
      if (!last) return;
      e.normalized_.finish(use, found);
      e.pre_tokenizer_.piece({}, true);
    }
    PipelineEncoder& e;
  };

  /// Converts words to ids.
  struct Words final : TextSink {
    explicit Words(PipelineEncoder& encoder) : e(encoder) {}
    void piece(std::string_view text, bool last) override {
      if (e.word_.empty()) {
        const std::size_t used = run(text, last);
        if (!last) hold(text.substr(used));
        return;
      }
      e.word_ += text;
      if (!last && e.word_.size() < e.wait_) return;
      const std::size_t used = run(e.word_, last);
      e.word_.erase(0, last ? e.word_.size() : used);
      if (!last) hold({});
    }
    std::size_t run(std::string_view text, bool last) {
      const std::size_t used = e.model_->run(text, {e.first_, last, false}, *e.out_);
      e.first_ = last || (e.first_ && used == 0);
      return used;
    }
    void hold(std::string_view rest) {
      e.word_ += rest;
      limit_held(e.word_);
      e.wait_ = e.word_.size() + e.word_.size() / 2;
    }
    PipelineEncoder& e;
  };

  const PipelineParts& parts_;
  Utf8Repair repair_;
  LiteralSplitter raw_;
  LiteralSplitter normalized_;
  Words words_;
  Found found_;
  TextChain pre_tokenizer_;
  TextChain normalizer_;
  std::unique_ptr<WordEncoder> model_;
  std::string word_;  // part of a word that the model has not consumed
  std::size_t wait_ = 0;
  bool first_ = true;
  bool uses_origin_ = false;
  bool begun_ = false;                            // text of the current document has been fed
  std::unordered_map<char32_t, bool> kept_ = {};  // results of keeps_first() by character
  std::vector<std::int32_t>* out_ = nullptr;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  PipelineTokenizer(const JsonNode& top, const std::string& end_of_document,
                    const std::string& where);

  const std::string& name() const override { return name_; }
  std::int64_t vocabulary() const override { return std::ssize(texts_.names); }
  std::int32_t end_of_document() const override { return texts_.end_of_document; }
  std::vector<std::pair<std::string, std::int32_t>> special_tokens() const override {
    return data::special_tokens(parts_.added);
  }
  std::unique_ptr<Encoder> encoder(const EncodeOptions& options) const override {
    return std::make_unique<PipelineEncoder>(parts_, options);
  }
  void decode(std::span<const std::int32_t> ids, std::string& out) const override {
    DocumentDecoder all(texts_);
    all.feed(ids, out);
    all.finish(out);
  }
  std::unique_ptr<Decoder> decoder() const override {
    return std::make_unique<DocumentDecoder>(texts_);
  }
  std::int64_t text_bytes(std::int32_t id) const override;

 private:
  void make_name(const JsonNode& top);

  PipelineParts parts_;
  TokenTexts texts_;
  std::string name_;
};

PipelineTokenizer::PipelineTokenizer(const JsonNode& top, const std::string& end_of_document,
                                     const std::string& where) {
  parts_.normalizer = make_normalizer(top["normalizer"]);
  parts_.pre_tokenizer = make_pre_tokenizer(top["pre_tokenizer"]);
  parts_.added = read_added_tokens(top["added_tokens"]);
  for (const AddedToken& token : parts_.added)
    if (token.special) parts_.model_names.hide(token.content);
  parts_.model = make_model(top["model"], parts_.model_names);
  texts_.names = names_with(parts_.model_names, parts_.added, top["added_tokens"]);
  texts_.where = where;
  texts_.end_of_document = find_end_of_document(parts_.added, end_of_document, where);
  texts_.steps = make_decode_steps(top["decoder"]);
  for (AddedToken& token : parts_.added) {
    if (!token.normalized) continue;
    token.content = run_steps(parts_.normalizer, token.content);
    texts_.names[static_cast<std::size_t>(token.id)] = token.content;
  }
  make_name(top);
}

std::int64_t PipelineTokenizer::text_bytes(std::int32_t id) const {
  const std::string& token = texts_.names[static_cast<std::size_t>(id)];
  if (id == texts_.end_of_document || token.empty()) return 0;
  std::vector<std::string> part{token};
  for (const auto& step : texts_.steps) step->run(part, {false, false, false});
  std::string text;
  for (const auto& piece : part) text += piece;
  return is_byte_token(token) && text != token ? 1 : std::ssize(text);
}

/// UsageError for more than `levels` levels, because dump() recurses.
void expect_few_levels(const JsonNode& node, const nlohmann::json& json, int levels) {
  if (!json.is_structured()) return;
  if (levels == 0) node.refuse("at most 16 levels");
  for (const auto& part : json) expect_few_levels(node, part, levels - 1);
}

void PipelineTokenizer::make_name(const JsonNode& top) {
  Checksum sum;
  const auto add = [&](std::string_view bytes) {
    const std::uint64_t size = bytes.size();
    sum.update(&size, sizeof size);
    sum.update(bytes.data(), bytes.size());
  };
  for (const char* key : {"normalizer", "pre_tokenizer"}) {
    const JsonNode node = top[key];
    expect_few_levels(node, node.json, 16);
    add(node.json.dump());
  }
  for (const auto& name : texts_.names) add(name);
  parts_.model->add_to(sum);
  add_to(sum, parts_.added);
  name_ = std::string(parts_.model->kind()) + "-" + sum.digest().hex();
}

std::unique_ptr<Tokenizer> make_pipeline_tokenizer(const JsonNode& top,
                                                   const std::string& end_of_document,
                                                   const std::string& path) {
  return std::make_unique<PipelineTokenizer>(top, end_of_document, path);
}

// The ids that a post-processor puts before a text, such as Llama's <s>.

std::vector<std::int32_t> ids_before_text(const JsonNode& post_processor);

using Ids = std::vector<std::int32_t>;

constexpr std::size_t most_template_parts = 256;

std::int32_t id_of(const JsonNode& node) {
  return static_cast<std::int32_t>(node.count(TokenNames::id_limit - 1));
}

Ids no_ids(const JsonNode&) {
  return {};
}

/// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens":
/// {"<s>": {"ids": [1]}}}: returns the ids before the first sequence.
Ids from_template(const JsonNode& node) {
  Ids ids;
  const JsonNode parts = node["single"];
  const std::size_t size =
      parts.list_size(most_template_parts, "a list of special tokens and a sequence");
  for (std::size_t i = 0; i < size; ++i) {
    const JsonNode token = parts[i]["SpecialToken"];
    if (token.json.is_null()) return ids;  // the Sequence, which is the text
    const JsonNode of_name = node["special_tokens"][token["id"].string().c_str()]["ids"];
    const std::size_t count = of_name.list_size(most_template_parts, "a list of ids");
    for (std::size_t k = 0; k < count; ++k) ids.push_back(id_of(of_name[k]));
  }
  return ids;
}

/// {"cls": ["[CLS]", 101]}: returns the id of "cls".
Ids from_pair(const JsonNode& node) {
  const JsonNode token = node["cls"];
  if (token.list_size(2, "a token and its id") != 2) token.refuse("a token and its id");
  return {id_of(token[1])};
}

/// Later processors put their ids before the ids of earlier processors.
Ids from_sequence(const JsonNode& node) {
  Ids ids;
  const JsonNode parts = node["processors"];
  const std::size_t size = parts.list_size(16, "a list of post-processors");
  for (std::size_t i = 0; i < size; ++i) {
    if (parts[i]["type"].json == "Sequence") parts[i].refuse("no Sequence in a Sequence");
    const Ids before = ids_before_text(parts[i]);
    ids.insert(ids.begin(), before.begin(), before.end());
  }
  return ids;
}

constexpr std::array<JsonPart<Ids (*)(const JsonNode&)>, 5> post_processors{{
    {"ByteLevel", no_ids},
    {"TemplateProcessing", from_template},
    {"BertProcessing", from_pair},
    {"RobertaProcessing", from_pair},
    {"Sequence", from_sequence},
}};

std::vector<std::int32_t> ids_before_text(const JsonNode& post_processor) {
  if (post_processor.json.is_null()) return {};
  return part_of_type(post_processor, post_processors).build(post_processor);
}

}  // namespace

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

std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& content, const std::string& path,
                                           const std::string& end_of_document) {
  auto json = nlohmann::json::parse(content, nullptr, false);
  check_usage(!json.is_discarded(), path, ": is not JSON: ", json_mistake(content),
              "; fetch or write the file again");
  check_usage(json.is_object(), path, ": is not a JSON object");
  add_model_type(json);
  const JsonNode top{json, path + ": "};
  for (const char* key : {"truncation", "padding"}) top[key].expect_nothing();
  std::unique_ptr<Tokenizer> tokenizer = is_byte_level(top)
                                             ? make_byte_level_tokenizer(top, end_of_document, path)
                                             : make_pipeline_tokenizer(top, end_of_document, path);
  tokenizer->set_before_text(ids_before_text(top["post_processor"]));
  return tokenizer;
}

}  // namespace trireme::data
