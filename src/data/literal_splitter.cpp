#include <trireme/data/literal_splitter.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <utility>

namespace trireme::data {

LiteralSplitter::LiteralSplitter(std::vector<Literal> literals) : literals_(std::move(literals)) {
  const auto first_byte = [](const Literal& l) { return static_cast<unsigned char>(l.content[0]); };
  for (const auto& literal : literals_) check(!literal.content.empty(), "an empty literal");
  std::stable_sort(literals_.begin(), literals_.end(), [&](const Literal& a, const Literal& b) {
    return std::pair(first_byte(a), b.content.size()) < std::pair(first_byte(b), a.content.size());
  });
  first_.fill(0);
  for (const auto& literal : literals_) {
    ++first_[first_byte(literal) + std::size_t{1}];
    auto& longest = longest_[first_byte(literal)];
    longest = std::max(longest, literal.content.size());
  }
  for (std::size_t b = 0; b < 256; ++b) first_[b + 1] += first_[b];
}

const LiteralSplitter::Literal* LiteralSplitter::literal_at(std::size_t at) const {
  const auto byte = static_cast<unsigned char>(held_[at]);
  for (std::int32_t i = first_[byte]; i < first_[byte + std::size_t{1}]; ++i) {
    const Literal& literal = literals_[static_cast<std::size_t>(i)];
    if (held_.compare(at, literal.content.size(), literal.content) == 0) return &literal;
  }
  return nullptr;
}

}  // namespace trireme::data
