#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/placement.hpp>

namespace trireme::architecture {
LocalSizes local_sizes(const deck::ModelConfig& m, const Shard& shard, std::int64_t micro,
                       std::int64_t sequence, bool sequence_parallel, std::int64_t logit_elements) {
  LocalSizes s;
  s.micro = micro;
  s.sequence = sequence;
  s.tokens = micro * sequence;
  s.slice = shard.part(s.tokens).extent;
  s.cuts_tokens = sequence_parallel && shard.tensor_size > 1;
  s.rows = s.cuts_tokens ? s.slice : s.tokens;
  s.hidden = m.hidden;
  const layout::Slice heads = shard.part(m.heads);
  s.heads = heads.extent;
  s.group = m.heads_per_group();
  s.key_value_heads = shard.groups(m.heads / s.group, s.group).extent;
  s.heads_before = heads.offset % s.group;
  s.head_size = m.head_size();
  s.feed_forward = shard.part(m.feed_forward).extent;
  s.vocabulary = shard.part(m.vocabulary).extent;
  s.targets = m.predicts_masked_tokens() ? micro * m.targets() : s.tokens;
  s.logit_block = logit_block_rows(s.targets, m.vocabulary, logit_elements);
  s.pairs = m.has_sentence_head() ? micro : 0;
  s.tensor_ranks = shard.tensor_size;
  s.inner = m.activation == Activation::swiglu ? 2 * s.feed_forward : s.feed_forward;
  return s;
}

}  // namespace trireme::architecture
