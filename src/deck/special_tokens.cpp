#include <trireme/deck/special_tokens.hpp>

#include <trireme/base/check.hpp>

#include <array>
#include <utility>

namespace trireme::deck {

std::vector<std::string> mistakes_of_special_tokens(const Deck& deck) {
  const std::int64_t vocabulary = deck.config.model.vocabulary;
  const SpecialTokens ids = special_tokens(deck.config);
  const std::array<std::pair<const char*, std::int64_t>, 3> named{
      {{"class_token", ids.begin}, {"separator_token", ids.separator}, {"mask_token", ids.mask}}};
  std::vector<std::string> mistakes;
  for (const auto& [name, id] : named)
    if (id < 0 || id >= vocabulary)
      mistakes.push_back(
          text(deck.cite("data", name),
               id < 0 ? " needs 3 or more ids, but the deck has " : " is not a token id of ",
               deck.cite("model", "vocabulary"), "; choose a larger vocabulary"));
  if (ids.begin == ids.separator || ids.begin == ids.mask || ids.separator == ids.mask)
    mistakes.push_back(text("[data] class_token = ", ids.begin,
                            ", separator_token = ", ids.separator, " and mask_token = ", ids.mask,
                            " are not three different token ids (",
                            deck.where("data", "class_token"), "); choose others"));
  return mistakes;
}

void check_special_tokens(const Deck& deck) {
  if (!deck.config.model.predicts_masked_tokens()) return;
  std::string all;
  for (const std::string& mistake : mistakes_of_special_tokens(deck))
    all += (all.empty() ? "" : "\n") + mistake;
  check_usage(all.empty(), all);
}

}  // namespace trireme::deck
