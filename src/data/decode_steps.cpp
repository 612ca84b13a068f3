// The types of decoders in a tokenizer.json.
#include <trireme/data/decode_steps.hpp>

#include <trireme/base/utf8.hpp>
#include <trireme/data/text_step.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/word_splitter.hpp>

#include <array>
#include <optional>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::size_t most_parts = 64;
constexpr int most_levels = 8;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

class Fuse final : public DecodeStep {
 public:
  void run(std::vector<std::string>& tokens, Edge) const override {
    std::string all;
    for (const auto& token : tokens) all += token;
    tokens = {std::move(all)};
  }
  bool works_in_parts(bool) const override { return true; }
  bool fuses() const override { return true; }
};

/// Converts the characters of characters_of_bytes() to bytes. Other tokens do not change.
class BytesOfCharacters final : public DecodeStep {
 public:
  void run(std::vector<std::string>& tokens, Edge) const override {
    for (auto& token : tokens)
      if (auto bytes = bytes_of_characters(token)) token = std::move(*bytes);
  }
};

/// The byte of a token such as "<0x41>"; std::nullopt for other tokens.
std::optional<char> byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : {token[3], token[4]}) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

/// Replaces each run of byte tokens by its text, or by one U+FFFD per byte if the run is not UTF-8.
class ByteFallback final : public DecodeStep {
 public:
  void run(std::vector<std::string>& tokens, Edge) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto end_run = [&] {
      if (bytes.empty()) return;
      if (utf8_run(bytes).valid == bytes.size())
        out.push_back(bytes);
      else
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      bytes.clear();
    };
    for (auto& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes += *byte;
        continue;
      }
      end_run();
      out.push_back(std::move(token));
    }
    end_run();
    tokens = std::move(out);
  }
};

class Metaspace final : public DecodeStep {
 public:
  Metaspace(const std::string& mark, bool keeps_first) : mark_(mark), keeps_first_(keeps_first) {}
  void run(std::vector<std::string>& tokens, Edge edge) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], mark_, i == 0 && edge.first && !keeps_first_ ? "" : " ");
  }

 private:
  std::string mark_;
  bool keeps_first_;
};

class ReplaceLiteral final : public DecodeStep {
 public:
  ReplaceLiteral(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void run(std::vector<std::string>& tokens, Edge) const override {
    for (auto& token : tokens) replace_all(token, from_, to_);
  }

 private:
  std::string from_;
  std::string to_;
};

class ReplacePattern final : public DecodeStep {
 public:
  ReplacePattern(const std::string& pattern, const std::string& where, std::string to)
      : pattern_(pattern, where), to_(std::move(to)) {}
  void run(std::vector<std::string>& tokens, Edge) const override {
    WordMatcher matcher(pattern_);
    for (auto& token : tokens) {
      std::string out;
      for (std::size_t at = 0; at < token.size();) {
        const auto found = matcher.find(token, at, true);
        if (found.kind != WordMatcher::Range::Kind::match) {
          out += token.substr(at);
          break;
        }
        out += token.substr(at, found.begin - at) + to_;
        at = found.end;
      }
      token = std::move(out);
    }
  }

 private:
  WordPattern pattern_;
  std::string to_;
};

/// Removes `content` from each token: up to `start` times at the beginning, `stop` times at the
/// end.
class Strip final : public DecodeStep {
 public:
  Strip(std::string content, std::int64_t start, std::int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void run(std::vector<std::string>& tokens, Edge edge) const override {
    for (auto& token : tokens) {
      std::string_view rest = token;
      const std::int64_t start = fused && !edge.first ? 0 : start_;
      for (std::int64_t i = 0; i < start && rest.starts_with(content_); ++i)
        rest.remove_prefix(content_.size());
      for (std::int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i)
        rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
  }
  bool works_in_parts(bool after_fuse) const override { return !after_fuse || stop_ == 0; }

  bool fused = false;  ///< an earlier step has merged the tokens of a part

 private:
  std::string content_;
  std::int64_t start_;
  std::int64_t stop_;
};

/// Joins BERT's tokens to words: removes `prefix` from tokens that continue a word, and puts a
/// space before other tokens, except at the beginning of a document.
class WordPiece final : public DecodeStep {
 public:
  WordPiece(std::string prefix, bool cleans) : prefix_(std::move(prefix)), cleans_(cleans) {}
  void run(std::vector<std::string>& tokens, Edge edge) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 || !edge.first)
        token = token.starts_with(prefix_) ? token.substr(prefix_.size()) : " " + token;
      if (cleans_) clean(token);
    }
  }

 private:
  /// Removes spaces by the rules of the `tokenizers` library, in the library's order.
  static void clean(std::string& token) {
    constexpr std::array<std::pair<const char*, const char*>, 11> rules{{{" .", "."},
                                                                         {" ?", "?"},
                                                                         {" !", "!"},
                                                                         {" ,", ","},
                                                                         {" ' ", "'"},
                                                                         {" n't", "n't"},
                                                                         {" 'm", "'m"},
                                                                         {" do not", " don't"},
                                                                         {" 's", "'s"},
                                                                         {" 've", "'ve"},
                                                                         {" 're", "'re"}}};
    for (const auto& [from, to] : rules) replace_all(token, from, to);
  }

  std::string prefix_;
  bool cleans_;
};

class Blanks final : public DecodeStep {
 public:
  void run(std::vector<std::string>& tokens, Edge edge) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (i > 0 || !edge.first) tokens[i].insert(0, " ");
  }
};

using Build = void (*)(const JsonNode&, int levels, DecodeSteps&);

void add(const JsonNode& node, int levels, DecodeSteps& steps);

bool is_fused(const DecodeSteps& steps) {
  for (const auto& step : steps)
    if (step->fuses()) return true;
  return false;
}

void byte_fallback(const JsonNode&, int, DecodeSteps& steps) {
  steps.push_back(std::make_unique<ByteFallback>());
}

void byte_level(const JsonNode&, int, DecodeSteps& steps) {
  steps.push_back(std::make_unique<BytesOfCharacters>());
  steps.push_back(std::make_unique<Fuse>());
}

void fuse(const JsonNode&, int, DecodeSteps& steps) {
  steps.push_back(std::make_unique<Fuse>());
}

void metaspace(const JsonNode& node, int, DecodeSteps& steps) {
  steps.push_back(std::make_unique<Metaspace>(utf8_of(node["replacement"].character()),
                                              read_prepend_scheme(node) == PrependScheme::never));
}

void replace(const JsonNode& node, int, DecodeSteps& steps) {
  const JsonNode pattern = node["pattern"];
  const std::string& content = node["content"].string();
  if (pattern.json.is_object() && pattern.json.contains("Regex")) {
    const JsonNode source = pattern["Regex"];
    steps.push_back(std::make_unique<ReplacePattern>(source.string(), source.path, content));
    return;
  }
  if (!pattern.json.is_object() || pattern["String"].is_nothing())
    pattern.refuse("{\"String\": ...} or {\"Regex\": ...}");
  steps.push_back(std::make_unique<ReplaceLiteral>(pattern["String"].string(), content));
}

void strip(const JsonNode& node, int, DecodeSteps& steps) {
  constexpr std::int64_t most = 1 << 20;
  auto step = std::make_unique<Strip>(utf8_of(node["content"].character()),
                                      node["start"].count(most), node["stop"].count(most));
  step->fused = is_fused(steps);
  steps.push_back(std::move(step));
}

void word_piece(const JsonNode& node, int, DecodeSteps& steps) {
  const JsonNode prefix = node["prefix"];
  steps.push_back(std::make_unique<WordPiece>(prefix.json.is_null() ? "##" : prefix.string(),
                                              node["cleanup"].flag(true)));
}

void sequence(const JsonNode& node, int levels, DecodeSteps& steps) {
  const JsonNode list = node["decoders"];
  const std::size_t size = list.list_size(most_parts, "a list of at most 64 decoders");
  for (std::size_t i = 0; i < size; ++i) add(list[i], levels - 1, steps);
}

constexpr std::array<JsonPart<Build>, 8> table{{
    {"ByteFallback", byte_fallback},
    {"ByteLevel", byte_level},
    {"Fuse", fuse},
    {"Metaspace", metaspace},
    {"Replace", replace},
    {"Sequence", sequence},
    {"Strip", strip},
    {"WordPiece", word_piece},
}};

void add(const JsonNode& node, int levels, DecodeSteps& steps) {
  if (levels == 0 || steps.size() > most_parts) node.refuse("at most 8 levels and 64 decoders");
  part_of_type(node, table).build(node, levels, steps);
}

}  // namespace

DecodeSteps make_decode_steps(const JsonNode& node) {
  DecodeSteps steps;
  if (node.json.is_null())
    steps.push_back(std::make_unique<Blanks>());
  else
    add(node, most_levels, steps);
  return steps;
}

bool is_byte_token(const std::string& token) {
  return byte_of(token).has_value();
}

bool is_cut(const std::string& left, const std::string& right) {
  return !byte_of(left) || !byte_of(right);
}

}  // namespace trireme::data
