// BPE on characters (Sennrich et al. 2016), with byte fallback (Kudo and Richardson 2018). A word
// may be a whole document, as for Llama 2: it is cut between characters that no merge can join, and
// the parts are merged and cached like words.
#include <trireme/data/token_model.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/data/bpe_merges.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/word_cache.hpp>

#include <algorithm>
#include <span>
#include <unordered_map>

namespace trireme::data {
namespace {

/// The ids of single characters; -1: none.
class CharacterIds {
 public:
  CharacterIds() : low_(0x10000, -1) {}
  void add(char32_t c, std::int32_t id) {
    if (c < low_.size())
      low_[c] = id;
    else
      high_[c] = id;
  }
  std::int32_t find(char32_t c) const {
    if (c < low_.size()) return low_[c];
    const auto found = high_.find(c);
    return found == high_.end() ? -1 : found->second;
  }

 private:
  std::vector<std::int32_t> low_;
  std::unordered_map<char32_t, std::int32_t> high_;
};

class BpeWords final : public TokenModel {
 public:
  BpeWords(const JsonNode& node, TokenNames& names);

  const char* kind() const override { return "bpe"; }
  std::unique_ptr<WordEncoder> encoder() const override;
  void add_to(Checksum& sum) const override {
    sum.update(list.data(), list.size() * sizeof list[0]);
    const std::int32_t rest[]{unknown, fuse_unknown, byte_fallback, ignore_merges};
    sum.update(rest, sizeof rest);
  }

  /// Whether a merge can join two neighbouring characters.
  bool joins(std::int32_t left, std::int32_t right) const {
    return borders.find(left, right).rank != BpeMerges::none;
  }

  TokenNames& names;
  std::vector<BpeMerge> list;
  BpeMerges merges{std::span<const BpeMerge>()};
  BpeMerges borders{std::span<const BpeMerge>()};  // pairs of characters at which merges join
  CharacterIds characters;
  std::vector<std::int32_t> bytes;
  std::int32_t unknown = -1;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  bool merges_others = false;  // merges join byte tokens or the unknown token

 private:
  void find_borders();
};

BpeWords::BpeWords(const JsonNode& node, TokenNames& all) : names(all) {
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
  byte_fallback = node["byte_fallback"].flag(false);
  fuse_unknown = node["fuse_unk"].flag(false);
  ignore_merges = node["ignore_merges"].flag(false);
  const JsonNode named = node["unk_token"];
  if (!named.is_nothing()) {
    unknown = names.id(named.string());
    if (unknown < 0) named.refuse("null or a token of model.vocab");
  }
  find_borders();
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

  /// Cuts the text into parts between which nothing merges, and encodes the parts that are whole.
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
    return !model_.fuse_unknown && !model_.byte_fallback;  // unknown ones wait: see add()
  }

  /// Unknown characters wait for the next known one, so that byte tokens between come first: a
  /// property of the `tokenizers` library.
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

  /// Merges the symbols of `part`.
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
  std::vector<std::int32_t> symbols_;  // of the part
  bool waiting_ = false;               // an unknown character has no symbol yet
};

std::unique_ptr<WordEncoder> BpeWords::encoder() const {
  return std::make_unique<BpeWordEncoder>(*this);
}

}  // namespace

std::unique_ptr<TokenModel> make_bpe_model(const JsonNode& node, TokenNames& names) {
  return std::make_unique<BpeWords>(node, names);
}

}  // namespace trireme::data
