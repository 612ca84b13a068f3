// The order of passes of a group of texts: sources that wait, then the tokens of prompts, then one
// token of each text.
#include <trireme/train/text_group.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <utility>

namespace trireme::train {
namespace {

/// Smallest number of waiting tokens, without the last token of each text, for a wide pass.
constexpr std::int64_t worth_a_wide_pass = 12;

}  // namespace

TextGroup::TextGroup(std::int32_t first_place, std::int64_t places, std::int64_t sequence,
                     std::int64_t source_sequence, std::int64_t wide, bool whole_images)
    : first_place_(first_place),
      sequence_(sequence),
      source_sequence_(source_sequence),
      wide_(wide),
      whole_images_(whole_images),
      places_(static_cast<std::size_t>(places)) {}

bool TextGroup::has_room() const {
  return std::ranges::any_of(places_, [](const Place& p) { return !p.text; });
}

bool TextGroup::empty() const {
  return std::ranges::none_of(places_, [](const Place& p) { return p.text.has_value(); });
}

void TextGroup::keep_last(std::vector<std::int32_t>& tokens, std::int64_t most) {
  if (std::ssize(tokens) > most) tokens.erase(tokens.begin(), tokens.end() - most);
}

void TextGroup::begin(std::size_t text, const std::vector<std::int32_t>& tokens,
                      std::vector<std::int32_t> source, data::TextImages images) {
  check(!tokens.empty(), "text ", text, " has no token");
  check(source.empty() == (source_sequence_ == 0) && std::ssize(source) <= source_sequence_,
        "the source of text ", text, " has ", source.size(), " tokens, expected at most ",
        source_sequence_, ", and at least one with an encoder");
  const auto free = std::ranges::find_if(places_, [](const Place& p) { return !p.text; });
  check(free != places_.end(), "no room for text ", text);
  check(images.rows.empty() || images.rows.size() == tokens.size(), "text ", text, " has ",
        tokens.size(), " tokens, and rows of images of ", images.rows.size());
  *free = {text, tokens, std::move(source), std::move(images.rows), std::move(images.pixels)};
  keep_last(free->tokens, sequence_);
  keep_last(free->image_rows, sequence_);
  place_ends(*free);
}

void TextGroup::place_ends(Place& place) const {
  if (!whole_images_ || place.image_rows.empty()) return;
  place.ends.resize(place.image_rows.size());
  data::place_key_ends(place.image_rows, place.ends);
}

model::CachedToken TextGroup::pass_token(std::size_t place) {
  Place& p = places_[place];
  const auto position = static_cast<std::int32_t>(p.passed++);
  const auto at = static_cast<std::size_t>(position);
  return {first_place_ + static_cast<std::int32_t>(place), p.tokens[at], position,
          at < p.image_rows.size() ? p.image_rows[at] : -1, at < p.ends.size() ? p.ends[at] : 0};
}

auto TextGroup::wide_pass() -> Pass {
  Pass pass;
  pass.width = model::PassWidth::wide;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& p = places_[i];
    while (p.text && p.waiting() > 1) {
      const std::int64_t together = p.together();
      check(together <= wide_, "an image of ", together, " tokens in passes of ", wide_);
      if (std::ssize(pass.rows) + together > wide_) break;
      for (std::int64_t t = 0; t < together; ++t) pass.rows.push_back(pass_token(i));
    }
    if (p.text && p.waiting() == 0)
      --p.passed;  // the last token of an image: once more, for logits
  }
  return pass;
}

auto TextGroup::next_sources() -> Pass {
  Pass pass;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    std::vector<std::int32_t>& source = places_[i].source;
    if (std::ssize(pass.rows) + std::ssize(source) > source_sequence_) continue;
    for (std::size_t position = 0; position < source.size(); ++position)
      pass.rows.push_back({first_place_ + static_cast<std::int32_t>(i), source[position],
                           static_cast<std::int32_t>(position)});
    source.clear();
  }
  pass.width = std::ssize(pass.rows) <= model::wide_rows ? model::PassWidth::source
                                                         : model::PassWidth::long_source;
  return pass;
}

auto TextGroup::next() -> Pass {
  std::int64_t waiting = 0;  // number of waiting tokens that are not the last of their text
  bool has_image = false;    // whether a text continues with an image, which must be in one pass
  for (const Place& p : places_) {
    if (!p.text) continue;
    waiting += p.waiting() - 1;
    has_image = has_image || p.together() > 1;
  }
  drawing_.assign(places_.size(), std::nullopt);
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (!places_[i].pixels.empty())
      return {model::PassWidth::source,
              {},
              std::exchange(places_[i].pixels, {}),
              first_place_ + static_cast<std::int32_t>(i)};
  Pass pass = next_sources();
  if (!pass.rows.empty()) return pass;
  pass = {};
  if (waiting >= worth_a_wide_pass || has_image) return wide_pass();
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
  if (!p.image_rows.empty()) p.image_rows.push_back(-1);
  if (!p.ends.empty()) p.ends.push_back(static_cast<std::int32_t>(std::ssize(p.tokens)));
  if (std::ssize(p.tokens) <= sequence_) return;
  keep_last(p.tokens, std::max<std::int64_t>(1, sequence_ / 2));
  keep_last(p.image_rows, std::max<std::int64_t>(1, sequence_ / 2));
  place_ends(p);
  p.passed = 0;
}

}  // namespace trireme::train
