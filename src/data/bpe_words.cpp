// Encoders of the BPE model. A word of characters, which can be a whole document as in Llama 2, is
// cut between characters that no merge can join.
#include <trireme/data/bpe_words.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/word_cache.hpp>

#include <algorithm>

namespace trireme::data {
BpeWords::BpeWords(const JsonNode& node, TokenNames& all, bool of_bytes) : names(all) {
  if (!node["dropout"].json.is_null() && node["dropout"].json != 0.0)
    node["dropout"].refuse("null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    node[key].expect_nothing();
  read_token_object(node["vocab"], names);
  names.finish(node["vocab"].path);
  const auto id_of = [&](const std::string& name, const JsonNode& merge) {
    const std::int32_t id = names.id(name);
    check_usage(id >= 0, merge.path, ": token '", name, "' is not in the vocabulary");
    return id;
  };
  read_merge_list(node["merges"], [&](const std::string& left, const std::string& right,
                                      const JsonNode& merge) {
    const BpeMerge found{id_of(left, merge), id_of(right, merge), id_of(left + right, merge)};
    if (!names.is_hidden(left + right)) list.push_back(found);
  });
  merges = BpeMerges(list);
  for (std::int32_t id = 0; id < names.size(); ++id) {
    const std::string& name = names.name(id);
    std::size_t at = 0;
    if (name.empty() || name.size() > 4 || names.is_hidden(name)) continue;
    const char32_t c = next_character(name, at);
    if (at == name.size()) characters.add(c, id);
  }
  bytes = names.byte_tokens();
  for (std::size_t byte = 0; byte < id_of_byte.size(); ++byte)
    id_of_byte[byte] = characters.find(character_of_byte(static_cast<unsigned char>(byte)));
  byte_fallback = node["byte_fallback"].flag(false);
  fuse_unknown = node["fuse_unk"].flag(false);
  ignore_merges = node["ignore_merges"].flag(false);
  const JsonNode named = node["unk_token"];
  if (!named.is_nothing()) {
    unknown = names.id(named.string());
    const bool all_bytes = std::ranges::find(id_of_byte, -1) == id_of_byte.end();
    if (of_bytes && !all_bytes)
      named.refuse("null, because the vocabulary does not have all 256 bytes");
    if (!of_bytes && unknown < 0) named.refuse("null or a token of model.vocab");
  }
  if (!of_bytes) find_borders();
}

void BpeWords::add_to(Checksum& sum) const {
  sum.update(list.data(), list.size() * sizeof list[0]);
  const std::int32_t rest[]{unknown, fuse_unknown, byte_fallback, ignore_merges};
  sum.update(rest, sizeof rest);
}

void BpeWords::find_borders() {
  std::vector<BpeMerge> pairs;
  for (const BpeMerge& merge : list) {
    std::string_view left = names.name(merge.left);
    const std::string& right = names.name(merge.right);
    for (const std::int32_t id : {merge.left, merge.right})
      merges_others = merges_others || id == unknown ||
                      std::find(bytes.begin(), bytes.end(), id) != bytes.end();
    if (left.empty() || right.empty()) continue;
    std::size_t at = 0;
    const std::int32_t before = characters.find(take_last_character(left));
    const std::int32_t after = characters.find(next_character(right, at));
    if (before >= 0 && after >= 0) pairs.push_back({before, after, 0});
  }
  borders = BpeMerges(pairs);
}

namespace {

class BpeWordEncoder final : public WordEncoder {
 public:
  explicit BpeWordEncoder(const BpeWords& model) : model_(model) {}

  std::size_t run(std::string_view text, Edge edge, std::vector<std::int32_t>& out) override {
    if (text.empty()) return 0;
    if (edge.first && model_.ignore_merges) {
      if (!edge.last && text.size() <= model_.names.longest()) return 0;
      const std::int32_t whole = edge.last ? model_.names.find(text) : -1;
      if (whole >= 0) return out.push_back(whole), text.size();
    }
    if (edge.first && edge.last && text.size() <= WordCache::longest_word) {
      WordCache::Place& place = cache_.place(text);
      if (place.holds(text)) return append(place, out), text.size();
    }
    return run_parts(text, edge, out);
  }

 private:
  enum class Kind { none, known, bytes, unknown };

  static void append(const WordCache::Place& place, std::vector<std::int32_t>& out) {
    out.insert(out.end(), place.ids, place.ids + place.count);
  }

  /// Encodes the text in parts that no merge joins. Encodes the last part only if it ends the word.
  /// Returns the number of bytes encoded.
  std::size_t run_parts(std::string_view text, Edge edge, std::vector<std::int32_t>& out) {
    symbols_.clear();
    waiting_ = false;
    std::size_t begin = 0;
    Kind before = Kind::none;
    std::int32_t last_id = -1;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t here = at;
      const char32_t c = next_character(text, at);
      const std::int32_t id = model_.characters.find(c);
      const std::string_view bytes = text.substr(here, at - here);
      const Kind kind = id >= 0               ? Kind::known
                        : falls_back(bytes)   ? Kind::bytes
                        : model_.unknown >= 0 ? Kind::unknown
                                              : Kind::none;
      if (kind == Kind::none) continue;  // dropped, as in the `tokenizers` library
      if (before != Kind::none && is_cut(before, last_id, kind, id)) {
        encode(text.substr(begin, here - begin), out);
        begin = here;
      }
      add(kind, id, bytes);
      before = kind;
      last_id = id;
    }
    if (!edge.last) return begin;
    encode(text.substr(begin), out);
    return text.size();
  }

  bool falls_back(std::string_view bytes) const {
    return model_.byte_fallback && std::all_of(bytes.begin(), bytes.end(), [&](char byte) {
             return model_.bytes[static_cast<unsigned char>(byte)] >= 0;
           });
  }

  bool is_cut(Kind left, std::int32_t left_id, Kind right, std::int32_t right_id) const {
    if (left == Kind::known && right == Kind::known) return !model_.joins(left_id, right_id);
    if (model_.merges_others) return false;
    if (left != Kind::unknown || right == Kind::known) return true;
    return !model_.fuse_unknown && !model_.byte_fallback;  // unknown characters wait: see add()
  }

  /// Appends the symbols of a character. As in the `tokenizers` library, an unknown character's
  /// symbol follows the byte tokens of the characters after it.
  void add(Kind kind, std::int32_t id, std::string_view bytes) {
    if (kind == Kind::unknown) {
      if (waiting_ && !model_.fuse_unknown) symbols_.push_back(model_.unknown);
      waiting_ = true;
    } else if (kind == Kind::bytes) {
      for (const char byte : bytes)
        symbols_.push_back(model_.bytes[static_cast<unsigned char>(byte)]);
    } else {
      end_unknown();
      symbols_.push_back(id);
    }
  }
  void end_unknown() {
    if (waiting_) symbols_.push_back(model_.unknown);
    waiting_ = false;
  }

  /// Merges symbols_, the symbols of `part`, and appends their ids.
  void encode(std::string_view part, std::vector<std::int32_t>& out) {
    end_unknown();
    if (symbols_.size() > 1 && part.size() <= WordCache::longest_word) {
      WordCache::Place& place = cache_.place(part);
      if (!place.holds(part)) {
        symbols_.resize(model_.merges.apply(symbols_));
        place.keep(part, symbols_);
      } else {
        symbols_.assign(place.ids, place.ids + place.count);
      }
    } else if (symbols_.size() > 1) {
      symbols_.resize(model_.merges.apply(symbols_));
    }
    out.insert(out.end(), symbols_.begin(), symbols_.end());
    symbols_.clear();
  }

  const BpeWords& model_;
  WordCache cache_;
  std::vector<std::int32_t> symbols_;  // symbols of the current part
  bool waiting_ = false;               // an unknown character has no symbol yet
};

class ByteWordEncoder final : public WordEncoder {
 public:
  ByteWordEncoder(const BpeWords& model, const std::string& where) : model_(model), where_(where) {}

  std::size_t run(std::string_view word, Edge, std::vector<std::int32_t>& out) override {
    encode_cached(cache_, word, out, [&](std::vector<std::int32_t>& to) { encode(word, to); });
    return word.size();
  }

 private:
  void encode(std::string_view word, std::vector<std::int32_t>& out) const {
    if (model_.ignore_merges)
      if (const std::int32_t whole = model_.names.find(characters_of_bytes(word)); whole >= 0)
        return out.push_back(whole);
    const std::size_t begin = out.size();
    out.resize(begin + word.size());
    std::int32_t lowest = 0;
    for (std::size_t i = 0; i < word.size(); ++i) {
      out[begin + i] = model_.id_of_byte[static_cast<unsigned char>(word[i])];
      lowest = std::min(lowest, out[begin + i]);
    }
    if (lowest < 0) {
      const auto missing = static_cast<std::size_t>(
          std::find(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(), -1) - out.begin());
      throw UsageError(text(where_, ": has no token for byte ",
                            static_cast<int>(static_cast<unsigned char>(word[missing - begin])),
                            ", which the text contains"));
    }
    out.resize(begin + model_.merges.apply(std::span(out).subspan(begin)));
  }

  const BpeWords& model_;
  const std::string& where_;
  WordCache cache_;
};

}  // namespace

std::unique_ptr<WordEncoder> BpeWords::encoder() const {
  return std::make_unique<BpeWordEncoder>(*this);
}

std::unique_ptr<WordEncoder> BpeWords::byte_encoder(const std::string& where) const {
  return std::make_unique<ByteWordEncoder>(*this, where);
}

}  // namespace trireme::data
