#include <trireme/data/answer_ends.hpp>

#include <algorithm>
#include <vector>

namespace trireme::data {
namespace {

constexpr std::int64_t most_documents = 256;
constexpr std::int64_t most_tokens = 1 << 20;

}  // namespace

std::set<std::int64_t> answer_ends(const TokenSource& source, const Tokenizer& tokenizer) {
  std::set<std::int64_t> ends;
  if (!source.has_mask()) return ends;
  std::vector<std::int64_t> offsets(
      static_cast<std::size_t>(std::min(source.documents(), most_documents)) + 1);
  source.read_document_offsets(0, offsets);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(offsets.back(), most_tokens)));
  source.read(0, ids);
  std::vector<std::int32_t> counted = ids;
  source.mask(0, counted);
  // A run of counted tokens ends before an uncounted token; documents that count to their end are
  // ended by the end of the document.
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    if (counted[i] != uncounted && counted[i + 1] == uncounted) ends.insert(ids[i]);
  ends.erase(tokenizer.end_of_document());
  std::erase_if(ends, [special = tokenizer.special_tokens()](std::int64_t id) {
    return std::ranges::none_of(special, [id](const auto& token) { return token.second == id; });
  });
  return ends;
}

}  // namespace trireme::data
