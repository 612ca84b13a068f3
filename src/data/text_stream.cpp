// Converts tokens to text as they arrive. A token's text can depend on earlier tokens and can be a
// part of a character. Therefore the last known tokens are decoded without and with the new tokens.
#include <trireme/data/text_stream.hpp>

#include <trireme/base/utf8.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

namespace trireme::data {
namespace {

/// Largest number of tokens that are held for the end of a character.
constexpr std::size_t most_held = 16;
constexpr std::string_view replacement = "\xEF\xBF\xBD";

/// Whether more bytes can change the end of the text. Decoders write a replacement character for
/// bytes that are not a whole character.
bool is_open(std::string_view text) {
  if (text.ends_with(replacement)) return true;
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const Utf8Run run = utf8_run(text.substr(text.size() - n));
    if (run.valid == 0 && run.incomplete) return true;
  }
  return false;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> before,
                       std::vector<std::string> stops)
    : tokenizer_(tokenizer),
      stops_(std::move(stops)),
      ids_(before.begin(), before.end()),
      read_(before.size()) {
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::string TextStream::decoded(std::size_t end) const {
  std::string text;
  tokenizer_.decode(std::span(ids_).first(end), text);
  return text;
}

void TextStream::decode(bool all) {
  const std::string before = decoded(read_), whole = decoded(ids_.size());
  const bool continues = whole.starts_with(before);
  if (continues && whole.size() == before.size()) {  // the new tokens have no text
    read_ = ids_.size();
    return;
  }
  if (!all && is_open(whole) && ids_.size() - read_ < most_held) return;
  if (continues)
    text_ += whole.substr(before.size());
  else  // the new ids complete a character of the previous text
    tokenizer_.decode(std::span(ids_).subspan(read_), text_);
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(read_));
  read_ = ids_.size();
}

/// Outputs text_ up to a stop text; unless `all`, holds back the last longest_ − 1 bytes, which may
/// begin a stop text. Returns false after a stop text.
bool TextStream::release(bool all, std::string& out) {
  std::size_t end = text_.size();
  for (const std::string& stop : stops_)
    if (const auto at = text_.find(stop); at < end) {
      end = at;
      stopped_ = true;
    }
  if (!all && !stopped_) end -= std::min(end, longest_ > 0 ? longest_ - 1 : 0);
  const auto continues = [&](std::size_t at) { return (text_[at] & 0xC0) == 0x80; };
  for (int bytes = 0; bytes < 3 && end > 0 && end < text_.size() && continues(end); ++bytes)
    --end;  // back to the end of a whole character
  out += text_.substr(0, end);
  text_.erase(0, end);
  return !stopped_;
}

bool TextStream::feed(std::int32_t id, std::string& out) {
  if (stopped_) return false;
  ids_.push_back(id);
  decode(false);
  return release(false, out);
}

bool TextStream::finish(std::string& out) {
  if (stopped_) return false;
  if (read_ < ids_.size()) decode(true);
  return release(true, out);
}

}  // namespace trireme::data
