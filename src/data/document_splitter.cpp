// Splits a stream with PCRE2's partial matching: holds back a match that further bytes could
// change, and the bytes that look-behind needs.
#include <trireme/data/document_splitter.hpp>

#include <trireme/base/check.hpp>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

namespace trireme::data {
namespace {

constexpr std::size_t held_limit_bytes = 8 << 20;

std::string message_of(int code) {
  std::array<unsigned char, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

/// A compiled expression; owns PCRE2's objects.
struct Expression {
  explicit Expression(const std::string& source);
  ~Expression();
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;

  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  std::size_t look_behind = 1;  // bytes to keep before the start of a search
};

Expression::Expression(const std::string& source) {
  int error = 0;
  PCRE2_SIZE place = 0;
  code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), PCRE2_NEVER_UTF,
                       &error, &place, nullptr);
  check_usage(code != nullptr, "document separator '", source,
              "': ", code != nullptr ? "" : message_of(error), " at character ", place);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  match = pcre2_match_data_create_from_pattern(code, nullptr);
  context = pcre2_match_context_create(nullptr);
  stack = pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr);
  pcre2_jit_stack_assign(context, nullptr, stack);
  std::uint32_t longest = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &longest);
  // At least 1, so that \A and ^ do not match at the beginning of a later chunk; more, because
  // nested assertions can look back further than the longest look-behind.
  look_behind = 2 * std::size_t{longest} + 256;
}

Expression::~Expression() {
  pcre2_jit_stack_free(stack);
  pcre2_match_context_free(context);
  pcre2_match_data_free(match);
  pcre2_code_free(code);
}

}  // namespace

struct DocumentSplitter::State {
  std::string source;
  std::unique_ptr<Expression> expression;  // null: no separator, never matches
  std::string buffer;
  std::size_t start = 0;      // beginning of the next search; earlier bytes are done
  bool cut_at_start = false;  // an empty match has already cut at `start`
  bool open = false;          // bytes of the current file have been fed

  void search(bool final, const Sink& sink);
  void forget_handed_out();
};

/// Ends a document at every match that further bytes cannot change. `final`: no bytes follow.
void DocumentSplitter::State::search(bool final, const Sink& sink) {
  const Expression& e = *expression;
  const auto* text_begin = reinterpret_cast<PCRE2_SPTR>(buffer.data());
  const auto hand_out = [&](std::size_t end) {
    if (end > start) sink.piece(std::string_view(buffer).substr(start, end - start));
  };
  while (true) {
    const std::uint32_t options =
        (final ? 0u : PCRE2_PARTIAL_HARD) | (cut_at_start ? PCRE2_NOTEMPTY_ATSTART : 0u);
    const int code =
        pcre2_match(e.code, text_begin, buffer.size(), start, options, e.match, e.context);
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(e.match);
    if (code >= 0) {
      check_usage(range[0] >= start && range[1] >= range[0], "document separator '", source,
                  "' matches backwards; remove \\K");
      hand_out(range[0]);
      sink.end();
      start = range[1];
      cut_at_start = range[0] == range[1];
      continue;
    }
    check_usage(code == PCRE2_ERROR_NOMATCH || code == PCRE2_ERROR_PARTIAL, "document separator '",
                source, "': ", message_of(code), "; write a simpler expression");
    const std::size_t next = code == PCRE2_ERROR_PARTIAL ? range[0] : buffer.size();
    hand_out(next);
    cut_at_start = cut_at_start && next == start;
    start = next;
    return;
  }
}

void DocumentSplitter::State::forget_handed_out() {
  if (start <= expression->look_behind) return;
  buffer.erase(0, start - expression->look_behind);
  start = expression->look_behind;
}

DocumentSplitter::DocumentSplitter(const std::string& separator)
    : state_(std::make_unique<State>()) {
  state_->source = separator;
  if (!separator.empty()) state_->expression = std::make_unique<Expression>(separator);
}

DocumentSplitter::~DocumentSplitter() = default;

void DocumentSplitter::feed(std::string_view bytes, const Sink& sink) {
  if (bytes.empty()) return;
  state_->open = true;
  if (!state_->expression) {
    sink.piece(bytes);
    return;
  }
  state_->forget_handed_out();
  state_->buffer += bytes;
  state_->search(false, sink);
  check_usage(state_->buffer.size() - state_->start <= held_limit_bytes, "document separator '",
              state_->source, "': a match or look-ahead is longer than ",
              human_bytes(held_limit_bytes), "; write an expression that ends sooner");
}

void DocumentSplitter::finish(const Sink& sink) {
  if (!state_->open) return;
  if (state_->expression) state_->search(true, sink);
  sink.end();
  state_->buffer.clear();
  state_->start = 0;
  state_->cut_at_start = false;
  state_->open = false;
}

}  // namespace trireme::data
