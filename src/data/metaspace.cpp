// The pre-tokenizers that put a character before words: Metaspace, and ByteLevel's blank. Both
// stream: they hold nothing.
#include <trireme/data/metaspace.hpp>
#include <trireme/data/unicode.hpp>

namespace trireme::data {
namespace {

class Metaspace final : public TextStep {
 public:
  Metaspace(char32_t replacement, PrependScheme scheme, bool split)
      : replacement_(replacement), mark_(utf8_of(replacement)), scheme_(scheme), split_(split) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    word_.clear();
    bool begun = !edge.first;  // the word has bytes, perhaps already handed out
    if (edge.first && !text.empty() && prepends(edge) && !begins_with_mark(text, 0)) {
      word_ = mark_;
      begun = true;
    }
    for (std::size_t at = 0; at < text.size(); begun = true) {
      if (begins_with_mark(text, at)) {
        if (split_ && begun) {
          out.piece(word_, true);
          word_.clear();
        }
        word_ += mark_;
        at += text[at] == ' ' ? 1 : mark_.size();
        continue;
      }
      const std::size_t begin = at;
      next_character(text, at);
      word_ += text.substr(begin, at - begin);
    }
    if (!word_.empty() || edge.last) out.piece(word_, edge.last);
    return text.size();
  }
  std::unique_ptr<TextStep> copy() const override {
    return std::make_unique<Metaspace>(replacement_, scheme_, split_);
  }

  bool uses_origin() const override { return scheme_ == PrependScheme::first; }

 private:
  bool prepends(Edge edge) const {
    return scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && edge.origin);
  }
  bool begins_with_mark(std::string_view text, std::size_t at) const {
    return text[at] == ' ' || text.compare(at, mark_.size(), mark_) == 0;
  }

  char32_t replacement_;
  std::string mark_;
  PrependScheme scheme_;
  bool split_;
  std::string word_;
};

class PrefixSpace final : public TextStep {
 public:
  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    if (edge.first && !text.empty() && text[0] != ' ') out.piece(" ", false);
    if (!text.empty() || edge.last) out.piece(text, edge.last);
    return text.size();
  }
  std::unique_ptr<TextStep> copy() const override { return std::make_unique<PrefixSpace>(); }
};

}  // namespace

PrependScheme read_prepend_scheme(const JsonNode& node) {
  const JsonNode named = node["prepend_scheme"];
  const JsonNode older = node["add_prefix_space"];
  PrependScheme scheme = PrependScheme::always;
  if (named.json == "first")
    scheme = PrependScheme::first;
  else if (named.json == "never")
    scheme = PrependScheme::never;
  else if (!named.json.is_null() && named.json != "always")
    named.refuse("\"always\", \"first\" or \"never\"");
  if (older.flag(true)) return scheme;
  if (!named.json.is_null() && scheme != PrependScheme::never)
    named.refuse("\"never\" with add_prefix_space = false");
  return PrependScheme::never;
}

std::unique_ptr<TextStep> make_metaspace(char32_t replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(replacement, scheme, split);
}

std::unique_ptr<TextStep> make_prefix_space() {
  return std::make_unique<PrefixSpace>();
}

}  // namespace trireme::data
