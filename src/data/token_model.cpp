// The models WordPiece and Unigram, and the table of models of a tokenizer.json.
#include <trireme/data/token_model.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/data/bpe_words.hpp>
#include <trireme/data/token_trie.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/word_cache.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace trireme::data {
namespace {

// WordPiece (Wu et al. 2016; BERT): finds the longest token that begins the word, then the longest
// tokens that continue it. A word that does not consist of tokens, or has too many characters, is
// one unknown token.

class WordPiece final : public TokenModel {
 public:
  WordPiece(const JsonNode& node, TokenNames& names)
      : longest_word_(node["max_input_chars_per_word"].json.is_null()
                          ? 100
                          : node["max_input_chars_per_word"].count(1 << 20)) {
    const JsonNode prefix = node["continuing_subword_prefix"];
    prefix_ = prefix.json.is_null() ? "##" : prefix.string();
    read_token_object(node["vocab"], names);
    names.finish(node["vocab"].path);
    for (std::int32_t id = 0; id < names.size(); ++id) {
      const std::string& name = names.name(id);
      if (!name.empty() && !names.is_hidden(name)) trie_.add(name, id);
    }
    for (const char byte : prefix_)
      if (continued_ != TokenTrie::none) continued_ = trie_.next(continued_, byte);
    const JsonNode unknown = node["unk_token"];
    unknown_ = names.id(unknown.json.is_null() ? "[UNK]" : unknown.string());
    if (unknown_ < 0) unknown.refuse("a token of model.vocab");
  }

  const char* kind() const override { return "wordpiece"; }
  std::unique_ptr<WordEncoder> encoder() const override;

  void add_to(Checksum& sum) const override {
    sum.update(prefix_.data(), prefix_.size());
    const std::int64_t rest[]{unknown_, longest_word_};
    sum.update(rest, sizeof rest);
  }

  void encode(std::string_view word, std::vector<std::int32_t>& out) const {
    const std::size_t before = out.size();
    if (characters(word) <= longest_word_ && encode_parts(word, out)) return;
    out.resize(before);
    out.push_back(unknown_);
  }

 private:
  static std::int64_t characters(std::string_view text) {
    std::int64_t count = 0;
    for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80 ? 1 : 0;
    return count;
  }

  bool encode_parts(std::string_view word, std::vector<std::int32_t>& out) const {
    for (std::size_t begin = 0; begin < word.size();) {
      std::int32_t node = begin == 0 ? TokenTrie::root : continued_;
      std::int32_t id = TokenTrie::none;
      std::size_t end = begin;
      for (std::size_t at = begin; at < word.size() && node != TokenTrie::none; ++at) {
        node = trie_.next(node, word[at]);
        if (node == TokenTrie::none || trie_.id(node) == TokenTrie::none) continue;
        id = trie_.id(node);
        end = at + 1;
      }
      if (id == TokenTrie::none) return false;
      out.push_back(id);
      begin = end;
    }
    return true;
  }

  std::int64_t longest_word_;
  std::string prefix_;
  TokenTrie trie_;
  std::int32_t continued_ = TokenTrie::root;  // node of prefix_, or `none`
  std::int32_t unknown_ = -1;
};

class WordPieceEncoder final : public WordEncoder {
 public:
  explicit WordPieceEncoder(const WordPiece& model) : model_(model) {}

  std::size_t run(std::string_view text, Edge edge, std::vector<std::int32_t>& out) override {
    if (!edge.last || text.empty()) return 0;
    encode_cached(cache_, text, out,
                  [&](std::vector<std::int32_t>& ids) { model_.encode(text, ids); });
    return text.size();
  }

 private:
  const WordPiece& model_;
  WordCache cache_;
};

std::unique_ptr<WordEncoder> WordPiece::encoder() const {
  return std::make_unique<WordPieceEncoder>(*this);
}

// Unigram language model (Kudo 2018): finds the tokens whose scores have the largest sum, by the
// Viterbi algorithm. Among paths with equal sums, the path with the longest last token is chosen.
// When a long word is encoded in parts, the sum is carried over.

constexpr double unknown_penalty = 10;

/// A score as the `tokenizers` library reads it: its decimal digits, as an integer rounded to
/// double, multiplied or divided by a power of ten.
double as_read_by_tokenizers(double score) {
  std::array<char, 64> buffer{};
  const auto shortest = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(score),
                                      std::chars_format::scientific);
  std::uint64_t digits = 0;
  int exponent = 0;
  const char* at = buffer.data();
  for (bool fraction = false; at != shortest.ptr && *at != 'e'; ++at) {
    if (*at == '.') {
      fraction = true;
      continue;
    }
    digits = digits * 10 + static_cast<std::uint64_t>(*at - '0');
    exponent -= fraction ? 1 : 0;
  }
  int power = 0;
  if (at != shortest.ptr) std::from_chars(at + (at[1] == '+' ? 2 : 1), shortest.ptr, power);
  exponent += power;
  if (exponent < -300 || exponent > 300) return score;
  const double ten = std::pow(10.0, std::abs(exponent));  // exact for exponents up to 22
  const auto whole = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? whole / ten : whole * ten, score);
}

class Unigram final : public TokenModel {
 public:
  Unigram(const JsonNode& node, TokenNames& names);

  const char* kind() const override { return "unigram"; }
  std::unique_ptr<WordEncoder> encoder() const override;
  void add_to(Checksum& sum) const override {
    sum.update(scores.data(), scores.size() * sizeof(double));
    const std::int32_t rest[]{unknown, byte_fallback};
    sum.update(rest, sizeof rest);
  }

  TokenNames& names;
  std::string where;
  std::vector<double> scores;
  std::vector<std::int32_t> bytes;  // ids of "<0x00>" to "<0xFF>"
  double unknown_score = 0;
  std::int32_t unknown = -1;  // -1: none
  bool byte_fallback = false;
  std::size_t longest = 0;
  TokenTrie trie;
};

Unigram::Unigram(const JsonNode& node, TokenNames& all) : names(all), where(node.path) {
  const JsonNode list = node["vocab"];
  const std::size_t size = list.list_size(TokenNames::id_limit, "a list of [token, score]");
  if (size == 0) list.refuse("a list of [token, score]");
  double lowest = std::numeric_limits<double>::infinity();
  for (std::size_t id = 0; id < size; ++id) {
    const JsonNode entry = list[id];
    if (!entry.json.is_array() || entry.json.size() != 2) entry.refuse("[token, score]");
    const std::string& token = entry[std::size_t{0}].string();
    scores.push_back(as_read_by_tokenizers(entry[std::size_t{1}].number()));
    lowest = std::min(lowest, scores.back());
    names.append(token, list.path);
    if (!token.empty() && !names.is_hidden(token)) trie.add(token, static_cast<std::int32_t>(id));
  }
  names.finish(list.path);
  longest = names.longest();
  unknown_score = lowest - unknown_penalty;
  bytes = names.byte_tokens();
  byte_fallback = node["byte_fallback"].flag(false);
  const JsonNode unknown_id = node["unk_id"];
  if (!unknown_id.json.is_null())
    unknown = static_cast<std::int32_t>(unknown_id.count(std::ssize(scores) - 1));
}

class UnigramEncoder final : public WordEncoder {
 public:
  explicit UnigramEncoder(const Unigram& model) : model_(model) {}

  std::size_t run(std::string_view text, Edge edge, std::vector<std::int32_t>& out) override {
    if (edge.first && edge.last && !text.empty() && text.size() <= WordCache::longest_word) {
      encode_cached(cache_, text, out, [&](std::vector<std::int32_t>& ids) {
        carried_ = 0;
        follow(text, search(text, true), ids);
      });
      return text.size();
    }
    if (edge.first) carried_ = 0;
    const std::size_t end = search(text, edge.last);
    follow(text, end, out);
    carried_ = best_[end].score;
    return end;
  }

 private:
  /// The best path to a position of the text; id `none`: no path yet.
  struct Node {
    double score = 0;
    std::size_t begin = 0;  // beginning of the path's last token
    std::int32_t id = none;
  };
  static constexpr std::int32_t none = -1;

  void offer(std::size_t begin, std::size_t end, std::int32_t id, double score) {
    Node& node = best_[end];
    if (node.id == none || score > node.score) node = {score, begin, id};
  }

  /// Fills best_. Returns the end of the text if `last`, otherwise the last position that all paths
  /// visit and that does not follow an unknown token; 0 if there is none.
  std::size_t search(std::string_view text, bool last) {
    best_.assign(text.size() + 1, {});
    best_[0].score = carried_;
    std::size_t meeting = 0;
    std::size_t reach = 0;  // furthest end of all tokens so far
    std::size_t at = 0;
    while (at < text.size()) {
      if (!last && at + model_.longest > text.size()) break;  // tokens may extend beyond the text
      if (reach == at && at > 0 && best_[at].id != model_.unknown) meeting = at;
      std::size_t after = at;
      next_character(text, after);
      bool has_single = false;
      std::int32_t node = TokenTrie::root;
      for (std::size_t end = at; end < text.size();) {
        node = model_.trie.next(node, text[end++]);
        if (node == TokenTrie::none) break;
        const std::int32_t id = model_.trie.id(node);
        if (id == TokenTrie::none) continue;
        offer(at, end, id, model_.scores[static_cast<std::size_t>(id)] + best_[at].score);
        has_single = has_single || end == after;
        reach = std::max(reach, end);
      }
      if (!has_single) offer_unknown(text, at, after);
      reach = std::max(reach, after);
      at = after;
    }
    return last ? text.size() : meeting;
  }

  void offer_unknown(std::string_view text, std::size_t at, std::size_t after) {
    const double score = model_.unknown_score + best_[at].score;
    if (best_[after].id != none && score <= best_[after].score) return;
    check_usage(model_.unknown >= 0, model_.where, ".unk_id is null, and the text contains '",
                text.substr(at, after - at), "', which no token has; use another tokenizer");
    offer(at, after, model_.unknown, score);
  }

  /// Appends the ids of the best path to position `end`. Encodes adjacent unknown tokens as one
  /// run.
  void follow(std::string_view text, std::size_t end, std::vector<std::int32_t>& out) {
    path_.clear();
    for (std::size_t at = end; at > 0; at = best_[at].begin) path_.push_back(at);
    std::reverse(path_.begin(), path_.end());
    std::size_t begin = 0;
    for (std::size_t i = 0; i < path_.size(); ++i) {
      const std::int32_t id = best_[path_[i]].id;
      if (id == model_.unknown) {
        while (i + 1 < path_.size() && best_[path_[i + 1]].id == id) ++i;
        append_unknown(text.substr(begin, path_[i] - begin), out);
      } else {
        out.push_back(id);
      }
      begin = path_[i];
    }
  }

  void append_unknown(std::string_view run, std::vector<std::int32_t>& out) {
    const std::int32_t known =
        run.size() <= model_.longest ? model_.names.find(run) : std::int32_t{none};
    // The text contains the name of a token, such as "<unk>".
    if (known != none) return out.push_back(known);
    const auto has_token = [&](char byte) {
      return model_.bytes[static_cast<unsigned char>(byte)] >= 0;
    };
    if (!model_.byte_fallback || !std::all_of(run.begin(), run.end(), has_token))
      return out.push_back(model_.unknown);
    for (const char byte : run) out.push_back(model_.bytes[static_cast<unsigned char>(byte)]);
  }

  const Unigram& model_;
  WordCache cache_;
  double carried_ = 0;  // score of the word's consumed part
  std::vector<Node> best_;
  std::vector<std::size_t> path_;
};

std::unique_ptr<WordEncoder> Unigram::encoder() const {
  return std::make_unique<UnigramEncoder>(*this);
}

using Build = std::unique_ptr<TokenModel> (*)(const JsonNode&, TokenNames&);

template <class Model>
std::unique_ptr<TokenModel> make(const JsonNode& node, TokenNames& names) {
  return std::make_unique<Model>(node, names);
}

constexpr std::array<JsonPart<Build>, 3> models{{
    {"BPE", make<BpeWords>},
    {"Unigram", make<Unigram>},
    {"WordPiece", make<WordPiece>},
}};

}  // namespace

std::unique_ptr<TokenModel> make_model(const JsonNode& node, TokenNames& names) {
  return part_of_type(node, models).build(node, names);
}

void add_model_type(nlohmann::json& top) {
  const auto found = top.find("model");
  if (found == top.end() || !found->is_object() || found->contains("type")) return;
  const auto has = [&](const char* key, auto test) {
    const auto member = found->find(key);
    return member != found->end() && test(*member);
  };
  const auto object = [](const auto& json) { return json.is_object(); };
  const auto list = [](const auto& json) { return json.is_array(); };
  const auto word = [](const auto& json) { return json.is_string(); };
  const auto count = [](const auto& json) { return json.is_number_integer(); };
  if (has("vocab", object) && has("merges", list))
    (*found)["type"] = "BPE";
  else if (has("vocab", object) && has("unk_token", word) &&
           has("continuing_subword_prefix", word) && has("max_input_chars_per_word", count))
    (*found)["type"] = "WordPiece";
  else if (has("vocab", object) && has("unk_token", word))
    (*found)["type"] = "WordLevel";
  else if (has("vocab", list))
    (*found)["type"] = "Unigram";
}

void read_token_object(const JsonNode& node, TokenNames& names) {
  if (!node.json.is_object()) node.refuse("an object of tokens and ids");
  for (const auto& [token, id] : node.json.items())
    names.add(token, JsonNode{id, node.path + "." + token}.id(), node.path);
}

}  // namespace trireme::data
