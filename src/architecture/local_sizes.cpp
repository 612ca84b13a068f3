#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/placement.hpp>

namespace trireme::architecture {

LocalSizes local_sizes(const deck::ModelConfig& m, const Shard& shard, std::int64_t micro,
                       std::int64_t sequence, bool sequence_parallel) {
  LocalSizes s;
  s.micro = micro;
  s.sequence = sequence;
  s.tokens = micro * sequence;
  s.slice = shard.part(s.tokens).extent;
  s.cuts_tokens = sequence_parallel && shard.tensor_size > 1;
  s.rows = s.cuts_tokens ? s.slice : s.tokens;
  s.hidden = m.hidden;
  s.heads = shard.part(m.heads).extent;
  s.head_size = m.head_size();
  s.feed_forward = shard.part(m.feed_forward).extent;
  s.vocabulary = shard.part(m.vocabulary).extent;
  s.logit_block = logit_block_rows(s.tokens, m.vocabulary);
  return s;
}

}  // namespace trireme::architecture
