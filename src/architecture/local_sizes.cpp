#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/placement.hpp>

namespace trireme::architecture {
namespace {

/// What differs between families.
void set_family(LocalSizes& s, Family family) {
  switch (family) {
    case Family::gpt:  // mean and deviation
      s.inner = s.feed_forward;
      s.norm_statistics = 2;
      return;
    case Family::llama:  // gate and up; root mean square
      s.inner = 2 * s.feed_forward;
      s.norm_statistics = 1;
      return;
  }
}

}  // namespace

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
  const layout::Slice heads = shard.part(m.heads);
  s.heads = heads.extent;
  s.group = m.heads_per_group();
  s.key_value_heads = shard.groups(m.heads / s.group, s.group).extent;
  s.heads_before = heads.offset % s.group;
  s.head_size = m.head_size();
  s.feed_forward = shard.part(m.feed_forward).extent;
  s.vocabulary = shard.part(m.vocabulary).extent;
  s.logit_block = logit_block_rows(s.tokens, m.vocabulary);
  set_family(s, m.family);
  return s;
}

}  // namespace trireme::architecture
