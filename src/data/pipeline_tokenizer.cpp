// Tokenizers made of parts. Text streams through the search for added tokens in raw text, the
// normalizer, the search for added tokens in normalized text, the pre-tokenizer and the model.
#include <trireme/data/tokenizer_json.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/data/added_tokens.hpp>
#include <trireme/data/decode_steps.hpp>
#include <trireme/data/document_decoder.hpp>
#include <trireme/data/text_step.hpp>
#include <trireme/data/token_model.hpp>
#include <trireme/data/token_names.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/utf8_repair.hpp>

#include <array>
#include <unordered_map>
#include <utility>

namespace trireme::data {
namespace {

/// The parts of a tokenizer that encoders use.
struct Parts {
  TextSteps normalizer;
  TextSteps pre_tokenizer;
  TokenNames model_names;
  std::unique_ptr<TokenModel> model;
  std::vector<AddedToken> added;  // tokens with flag `normalized` have normalized contents
};

class PipelineEncoder final : public Encoder {
 public:
  PipelineEncoder(const Parts& parts, const EncodeOptions& options)
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

  /// Receives normalized text, and searches it for added tokens.
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

  /// Receives words, and converts them to ids.
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

  const Parts& parts_;
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

  Parts parts_;
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

/// UsageError if a value has more than `levels` levels, because dump() recurses.
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

}  // namespace

std::unique_ptr<Tokenizer> make_pipeline_tokenizer(const JsonNode& top,
                                                   const std::string& end_of_document,
                                                   const std::string& path) {
  return std::make_unique<PipelineTokenizer>(top, end_of_document, path);
}

// The tokens that a tokenizer puts before a text, such as Llama's <s>.

namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t most_parts = 256;

std::int32_t id_of(const JsonNode& node) {
  return static_cast<std::int32_t>(node.count(TokenNames::id_limit - 1));
}

Ids nothing(const JsonNode&) {
  return {};
}

/// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens":
/// {"<s>": {"ids": [1]}}}: returns the ids before the first sequence.
Ids from_template(const JsonNode& node) {
  Ids ids;
  const JsonNode parts = node["single"];
  const std::size_t size = parts.list_size(most_parts, "a list of special tokens and a sequence");
  for (std::size_t i = 0; i < size; ++i) {
    const JsonNode token = parts[i]["SpecialToken"];
    if (token.json.is_null()) return ids;  // the Sequence, which is the text
    const JsonNode of_name = node["special_tokens"][token["id"].string().c_str()]["ids"];
    const std::size_t count = of_name.list_size(most_parts, "a list of ids");
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

/// The ids of later processors come before the ids of earlier processors.
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

constexpr std::array<JsonPart<Ids (*)(const JsonNode&)>, 5> kinds{{
    {"ByteLevel", nothing},
    {"TemplateProcessing", from_template},
    {"BertProcessing", from_pair},
    {"RobertaProcessing", from_pair},
    {"Sequence", from_sequence},
}};

}  // namespace

std::vector<std::int32_t> ids_before_text(const JsonNode& post_processor) {
  if (post_processor.json.is_null()) return {};
  return part_of_type(post_processor, kinds).build(post_processor);
}

}  // namespace trireme::data
