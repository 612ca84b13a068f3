// The normalizers Strip, Prepend and Replace.
#include <trireme/data/text_edits.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/word_splitter.hpp>

#include <memory>
#include <utility>

namespace trireme::data {
namespace {

/// Bytes of white space at the beginning.
std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  for (std::size_t next = 0; next < text.size(); at = next)
    if (!is_white_space(next_character(text, next))) return at;
  return at;
}

/// Bytes up to the white space at the end.
std::size_t without_trailing_space(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t size = rest.size();
    if (!is_white_space(take_last_character(rest))) return size;
  }
  return 0;
}

class Strip final : public TextStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    const std::size_t begin = left_ && edge.first ? leading_space(text) : 0;
    const bool only_space = begin == text.size();
    if (only_space && !edge.last) return 0;
    const std::size_t end = right_ ? std::max(begin, without_trailing_space(text)) : text.size();
    if (end > begin || edge.last) out.piece(text.substr(begin, end - begin), edge.last);
    return edge.last ? text.size() : end;
  }
  std::unique_ptr<TextStep> copy() const override { return std::make_unique<Strip>(left_, right_); }

 private:
  bool left_;
  bool right_;
};

class Prepend final : public TextStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    if (edge.first && !text.empty()) out.piece(prefix_, false);
    if (!text.empty() || edge.last) out.piece(text, edge.last);
    return text.size();
  }
  std::unique_ptr<TextStep> copy() const override { return std::make_unique<Prepend>(prefix_); }

 private:
  std::string prefix_;
};

class ReplaceLiteral final : public TextStep {
 public:
  ReplaceLiteral(std::string literal, std::string content)
      : literal_(std::move(literal)), content_(std::move(content)) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    replaced_.clear();
    std::size_t at = 0;
    for (std::size_t found; (found = text.find(literal_, at)) != std::string_view::npos;
         at = found + literal_.size()) {
      replaced_ += text.substr(at, found - at);
      replaced_ += content_;
    }
    std::size_t end = text.size();
    if (!edge.last && literal_.size() > 1)
      end = character_begin(text, std::max(at, end - std::min(end, literal_.size() - 1)));
    replaced_ += text.substr(at, end - at);
    if (!replaced_.empty() || edge.last) out.piece(replaced_, edge.last);
    return end;
  }
  std::unique_ptr<TextStep> copy() const override {
    return std::make_unique<ReplaceLiteral>(literal_, content_);
  }

 private:
  std::string literal_;
  std::string content_;
  std::string replaced_;
};

class ReplacePattern final : public TextStep {
 public:
  ReplacePattern(std::shared_ptr<const WordPattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)), matcher_(*pattern_) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    using RangeKind = WordMatcher::Range::Kind;
    replaced_.clear();
    std::size_t at = 0;
    while (at < text.size()) {
      const auto found = matcher_.find(text, at, edge.last);
      const std::size_t end = found.kind == RangeKind::none ? text.size() : found.begin;
      replaced_ += text.substr(at, end - at);
      at = end;
      if (found.kind != RangeKind::match) break;
      replaced_ += content_;
      at = found.end;
    }
    if (!replaced_.empty() || edge.last) out.piece(replaced_, edge.last);
    return at;
  }
  std::unique_ptr<TextStep> copy() const override {
    return std::make_unique<ReplacePattern>(pattern_, content_);
  }

 private:
  std::shared_ptr<const WordPattern> pattern_;
  std::string content_;
  WordMatcher matcher_;
  std::string replaced_;
};

}  // namespace

std::unique_ptr<TextStep> make_strip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}

std::unique_ptr<TextStep> make_prepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}

std::unique_ptr<TextStep> make_replace(std::string literal, std::string content) {
  return std::make_unique<ReplaceLiteral>(std::move(literal), std::move(content));
}

std::unique_ptr<TextStep> make_replace_pattern(const std::string& pattern, std::string content,
                                               const std::string& where) {
  return std::make_unique<ReplacePattern>(std::make_shared<const WordPattern>(pattern, where),
                                          std::move(content));
}

}  // namespace trireme::data
