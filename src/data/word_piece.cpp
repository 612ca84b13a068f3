// WordPiece (Wu et al. 2016; BERT): the longest token that begins the word, then the longest that
// continues it; a word with a part that is no token is one unknown token.
#include <trireme/data/word_piece.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/data/token_trie.hpp>
#include <trireme/data/word_cache.hpp>

namespace trireme::data {
namespace {

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
  std::int32_t continued_ = TokenTrie::root;  // node after the prefix
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

}  // namespace

std::unique_ptr<TokenModel> make_word_piece_model(const JsonNode& node, TokenNames& names) {
  return std::make_unique<WordPiece>(node, names);
}

}  // namespace trireme::data
