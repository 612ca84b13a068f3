#include <trireme/train/text_group.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>

namespace trireme::train {
namespace {

/// Smallest number of waiting tokens, without the last token of each text, for a wide pass.
constexpr std::int64_t worth_a_wide_pass = 12;

}  // namespace

TextGroup::TextGroup(std::int32_t first_place, std::int64_t places, std::int64_t sequence)
    : first_place_(first_place), sequence_(sequence), places_(static_cast<std::size_t>(places)) {}

bool TextGroup::has_room() const {
  return std::ranges::any_of(places_, [](const Place& p) { return !p.text; });
}

bool TextGroup::empty() const {
  return std::ranges::none_of(places_, [](const Place& p) { return p.text.has_value(); });
}

void TextGroup::keep_last(std::vector<std::int32_t>& tokens, std::int64_t most) {
  if (std::ssize(tokens) > most) tokens.erase(tokens.begin(), tokens.end() - most);
}

void TextGroup::begin(std::size_t text, const std::vector<std::int32_t>& tokens) {
  check(!tokens.empty(), "text ", text, " has no token");
  const auto free = std::ranges::find_if(places_, [](const Place& p) { return !p.text; });
  check(free != places_.end(), "no room for text ", text);
  *free = {text, tokens};
  keep_last(free->tokens, sequence_);
}

model::CachedToken TextGroup::pass_token(std::size_t place) {
  Place& p = places_[place];
  const auto position = static_cast<std::int32_t>(p.passed++);
  return {first_place_ + static_cast<std::int32_t>(place),
          p.tokens[static_cast<std::size_t>(position)], position};
}

auto TextGroup::next() -> Pass {
  std::int64_t waiting = 0;  // number of waiting tokens that are not the last of their text
  for (const Place& p : places_)
    if (p.text) waiting += p.waiting() - 1;
  Pass pass;
  drawing_.assign(places_.size(), std::nullopt);
  if (waiting >= worth_a_wide_pass) {
    pass.width = model::PassWidth::wide;
    for (std::size_t i = 0; i < places_.size(); ++i)
      while (places_[i].text && places_[i].waiting() > 1 &&
             std::ssize(pass.rows) < model::wide_rows)
        pass.rows.push_back(pass_token(i));
    return pass;
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    pass.rows.push_back(places_[i].text ? pass_token(i) : model::CachedToken{});
    if (!places_[i].text || places_[i].waiting() > 0) continue;
    drawing_[i] = places_[i].text;
    pass.with_logits = true;
  }
  return pass;
}

void TextGroup::append(std::size_t row, std::int32_t token, bool continues) {
  Place& p = places_[row];
  check(drawing_[row].has_value(), "row ", row, " has no logits");
  drawing_[row].reset();
  if (!continues) {
    p = {};
    return;
  }
  ++p.drawn;
  p.tokens.push_back(token);
  if (std::ssize(p.tokens) <= sequence_) return;
  keep_last(p.tokens, std::max<std::int64_t>(1, sequence_ / 2));
  p.passed = 0;
}

}  // namespace trireme::train
