// Splits text into words with PCRE2, by patterns translated from Oniguruma's syntax.
#include <trireme/data/word_splitter.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/data/oniguruma.hpp>
#include <trireme/data/unicode.hpp>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

namespace trireme::data {
namespace {

constexpr std::size_t word_limit_bytes = 4 << 20;
constexpr char substitute = 0x1A;

std::string message_of(int code) {
  std::array<unsigned char, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct WordPattern::Code {
  std::string where;
  std::string source;
  pcre2_code* code = nullptr;

  ~Code() { pcre2_code_free(code); }
};

WordPattern::WordPattern(const std::string& source, const std::string& where)
    : code_(std::make_unique<Code>()) {
  code_->where = where;
  code_->source = source;
  const std::string translated = to_pcre2(source, where);
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, context.get());
  check_usage(code_->code != nullptr, where, " = '", source,
              "': ", code_->code != nullptr ? "" : message_of(error));
  std::uint32_t matches_nothing = 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  check_usage(matches_nothing == 0, where, " = '", source,
              "': can match no text at all, which is not supported");
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
}

WordPattern::~WordPattern() = default;

struct WordMatcher::Scratch {
  explicit Scratch(const WordPattern::Code& of) : code(of) {
    match = pcre2_match_data_create(1, nullptr);
    context = pcre2_match_context_create(nullptr);
    stack = pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const WordPattern::Code& code;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
};

WordMatcher::WordMatcher(const WordPattern& pattern)
    : scratch_(std::make_unique<Scratch>(*pattern.code_)) {}
WordMatcher::~WordMatcher() = default;
WordMatcher::WordMatcher(WordMatcher&& other) noexcept = default;

WordMatcher::Range WordMatcher::find(std::string_view subject, std::size_t start, bool final) {
  const Scratch& s = *scratch_;
  const std::uint32_t options = PCRE2_NO_UTF_CHECK | (final ? 0u : PCRE2_PARTIAL_HARD);
  const int code = pcre2_match(s.code.code, reinterpret_cast<PCRE2_SPTR>(subject.data()),
                               subject.size(), start, options, s.match, s.context);
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(s.match);
  if (code >= 0) return {Range::Kind::match, range[0], range[1]};
  if (code == PCRE2_ERROR_NOMATCH) return {Range::Kind::none, 0, 0};
  check_usage(code == PCRE2_ERROR_PARTIAL, s.code.where, " = '", s.code.source,
              "': ", message_of(code), " at a long word of the text");
  return {Range::Kind::partial, range[0], range[0]};
}

WordSplitter::WordSplitter(const std::vector<std::unique_ptr<WordPattern>>& patterns,
                           bool add_prefix_space)
    : add_prefix_space_(add_prefix_space) {
  for (const auto& pattern : patterns) matchers_.emplace_back(*pattern);
}

void WordSplitter::append(std::string_view bytes) {
  if (!begun_ && add_prefix_space_ && bytes.front() != ' ') buffer_ += ' ';
  if (!begun_ && !shadow_.empty()) shadow_.clear();
  begun_ = true;
  const std::size_t before = buffer_.size();
  buffer_ += bytes;
  if (!shadow_.empty()) shadow_ += std::string_view(buffer_).substr(before);
}

void WordSplitter::validate(bool final) {
  while (checked_ < buffer_.size()) {
    const Utf8Run run = utf8_run(std::string_view(buffer_).substr(checked_));
    checked_ += run.valid;
    if (checked_ == buffer_.size() || (run.incomplete && !final)) return;
    if (shadow_.empty()) shadow_ = buffer_;
    shadow_[checked_++] = substitute;
  }
}

void WordSplitter::forget_handed_out() {
  buffer_.erase(0, start_);
  if (!shadow_.empty()) {
    shadow_.erase(0, start_);
    if (shadow_ == buffer_) shadow_.clear();
  }
  checked_ -= start_;
  start_ = 0;
}

void WordSplitter::limit_word() const {
  check_usage(buffer_.size() <= word_limit_bytes, "the text has a word of more than ",
              human_bytes(word_limit_bytes), " by the tokenizer's splitting pattern, beginning '",
              buffer_.substr(0, 40), "'; give a text file");
}

}  // namespace trireme::data
