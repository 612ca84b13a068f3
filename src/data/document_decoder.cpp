#include <trireme/data/document_decoder.hpp>

#include <trireme/base/check.hpp>

#include <iterator>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::size_t part_tokens = 4096;

}  // namespace

DocumentDecoder::DocumentDecoder(const TokenTexts& texts) : texts_(texts) {
  bool fused = false;
  for (const auto& step : texts.steps) {
    in_parts_ = in_parts_ && step->works_in_parts(fused);
    fused = fused || step->fuses();
  }
}

void DocumentDecoder::feed(std::span<const std::int32_t> ids, std::string& out) {
  for (const std::int32_t id : ids) {
    check(id >= 0 && id < std::ssize(texts_.names), "token id ", id, " is outside the ",
          texts_.names.size(), " ids of ", texts_.where);
    if (id == texts_.end_of_document) {
      finish(out);
      continue;
    }
    const std::string& name = texts_.names[static_cast<std::size_t>(id)];
    if (name.empty()) continue;
    const bool cut = in_parts_ && tokens_.size() >= part_tokens && is_cut(tokens_.back(), name);
    if (cut) decode(tokens_.size(), false, out);
    tokens_.push_back(name);
  }
}

void DocumentDecoder::finish(std::string& out) {
  if (!tokens_.empty()) decode(tokens_.size(), true, out);
  first_ = true;
}

void DocumentDecoder::decode(std::size_t count, bool last, std::string& out) {
  std::vector<std::string> part(
      std::make_move_iterator(tokens_.begin()),
      std::make_move_iterator(tokens_.begin() + static_cast<std::ptrdiff_t>(count)));
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(count));
  for (const auto& step : texts_.steps) step->run(part, {first_, last, false});
  for (const auto& token : part) out += token;
  first_ = false;
}

}  // namespace trireme::data
