// Byte-level BPE. The encoder streams text through four stages: raw added tokens, normalized added
// tokens, words, merges; a cache holds the ids of recent words.
#include <trireme/data/bpe_tokenizer.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/data/literal_splitter.hpp>
#include <trireme/data/word_cache.hpp>

#include <algorithm>
#include <utility>

namespace trireme::data {
namespace {

class BpeEncoder final : public Encoder {
 public:
  BpeEncoder(const BpeTokenizer& tokenizer, const EncodeOptions& options)
      : tokenizer_(tokenizer),
        raw_(literals_of(tokenizer.model().added, options, false)),
        normalized_(literals_of(tokenizer.model().added, options, true)),
        splitter_(tokenizer.patterns(), tokenizer.model().add_prefix_space) {}

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
  /// Ends the text before an added token; id -1: the end of the document.
  void end_both(std::int32_t id, std::vector<std::int32_t>& out) {
    normalized_.finish([&](std::string_view text) { feed_words(text, out); },
                       [&](std::int32_t found) { end_words(found, out); });
    end_words(id, out);
  }
  void feed_words(std::string_view text, std::vector<std::int32_t>& out) {
    splitter_.feed(text, [&](std::string_view word) { encode(word, out); });
  }
  void end_words(std::int32_t id, std::vector<std::int32_t>& out) {
    splitter_.finish([&](std::string_view word) { encode(word, out); });
    if (id >= 0) out.push_back(id);
  }

  void encode(std::string_view word, std::vector<std::int32_t>& out) {
    if (word.size() > WordCache::longest_word) return tokenizer_.encode_word(word, out);
    WordCache::Place& place = cache_.place(word);
    if (place.holds(word)) {
      const std::size_t size = out.size();
      out.resize(size + WordCache::most_ids);  // a copy of fixed size takes 1 or 2 instructions
      std::memcpy(out.data() + size, place.ids, sizeof place.ids);
      out.resize(size + place.count);
      return;
    }
    const std::size_t before = out.size();
    tokenizer_.encode_word(word, out);
    place.keep(word, std::span(out).subspan(before));
  }

  const BpeTokenizer& tokenizer_;
  LiteralSplitter raw_;
  LiteralSplitter normalized_;
  WordSplitter splitter_;
  WordCache cache_;
};

void add(Checksum& sum, std::string_view bytes) {
  const std::uint64_t size = bytes.size();
  sum.update(&size, sizeof size);
  sum.update(bytes.data(), bytes.size());
}

/// A checksum of everything that ids depend on: the same tokenizer in another file format has the
/// same name.
std::string name_of_model(const BpeModel& model) {
  Checksum sum;
  for (const auto& token : model.tokens) add(sum, token);
  add(sum, "merges");
  for (const auto& merge : model.merges) sum.update(&merge, sizeof merge);
  add(sum, "added");
  add_to(sum, model.added);
  add(sum, "patterns");
  for (const auto& pattern : model.patterns) add(sum, pattern);
  const std::int32_t flags[]{model.add_prefix_space, model.ignore_merges};
  sum.update(flags, sizeof flags);
  return "bpe-" + sum.digest().hex();
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeModel model, const std::string& end_of_document,
                           const std::string& where)
    : model_(std::move(model)),
      where_(where),
      name_(name_of_model(model_)),
      end_of_document_(find_end_of_document(model_.added, end_of_document, where)),
      merges_(model_.merges) {
  id_of_byte_.fill(-1);
  std::vector<bool> special(model_.tokens.size());
  for (const auto& token : model_.added)
    if (token.special) special[static_cast<std::size_t>(token.id)] = true;
  for (std::size_t id = 0; id < model_.tokens.size(); ++id) {
    const std::string& bytes = model_.tokens[id];
    if (special[id] || bytes.empty()) continue;
    auto& of_byte = id_of_byte_[static_cast<unsigned char>(bytes[0])];
    if (bytes.size() == 1 && of_byte < 0) of_byte = static_cast<std::int32_t>(id);
    if (model_.ignore_merges) whole_words_.emplace(bytes, static_cast<std::int32_t>(id));
  }
  for (const auto& pattern : model_.patterns)
    patterns_.push_back(std::make_unique<WordPattern>(pattern, where + ": splitting pattern"));
}

std::unique_ptr<Encoder> BpeTokenizer::encoder(const EncodeOptions& options) const {
  return std::make_unique<BpeEncoder>(*this, options);
}

void BpeTokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
  if (model_.ignore_merges)
    if (const auto whole = whole_words_.find(word); whole != whole_words_.end()) {
      out.push_back(whole->second);
      return;
    }
  const std::size_t begin = out.size();
  out.resize(begin + word.size());
  std::int32_t lowest = 0;
  for (std::size_t i = 0; i < word.size(); ++i) {
    out[begin + i] = id_of_byte_[static_cast<unsigned char>(word[i])];
    lowest = std::min(lowest, out[begin + i]);
  }
  if (lowest < 0) {
    const auto missing = static_cast<std::size_t>(
        std::find(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(), -1) - out.begin());
    throw UsageError(text(where_, ": has no token for byte ",
                          static_cast<int>(static_cast<unsigned char>(word[missing - begin])),
                          ", which the text contains"));
  }
  out.resize(begin + merges_.apply(std::span(out).subspan(begin)));
}

void BpeTokenizer::decode(std::span<const std::int32_t> ids, std::string& out) const {
  for (const std::int32_t id : ids) {
    check(id >= 0 && id < vocabulary(), "token id ", id, " is outside the ", vocabulary(),
          " ids of ", where_);
    if (id != end_of_document_) out += model_.tokens[static_cast<std::size_t>(id)];
  }
}

}  // namespace trireme::data
