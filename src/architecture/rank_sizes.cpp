#include <trireme/architecture/placement.hpp>
#include <trireme/architecture/rank_sizes.hpp>

namespace trireme::architecture {

RankSizes rank_sizes(const deck::ModelConfig& m, const Shard& shard, std::int64_t micro,
                     std::int64_t sequence, bool sequence_parallel, std::int64_t logit_elements) {
  RankSizes s;
  s.micro = micro;
  s.context_ranks = shard.context_size;
  s.sequence = shard.context_part(sequence).extent;
  s.longest = layout::split(sequence, shard.context_size, 0).extent;
  s.tokens = micro * s.sequence;
  s.slice = shard.part(s.tokens).extent;
  s.cuts_tokens = sequence_parallel && shard.tensor_size > 1;
  s.rows = s.cuts_tokens ? s.slice : s.tokens;
  if (m.has_source()) {
    const deck::ModelConfig of_source = m.of_source();
    StreamSizes& source = s.source;
    source.micro = micro * m.sources();
    source.sequence = m.source_sequence();
    source.tokens = micro * m.source_rows();
    source.slice = shard.part(source.tokens).extent;
    source.rows = s.cuts_tokens ? source.slice : source.tokens;
    source.hidden = of_source.hidden;
    const layout::Slice heads = shard.part(of_source.heads);
    source.heads = heads.extent;
    source.group = of_source.heads_per_group();
    source.key_value_heads = shard.groups(of_source.heads / source.group, source.group).extent;
    source.heads_before = heads.offset % source.group;
    source.head_size = of_source.head_size();
  }
  if (m.vision.present()) s.pixel_words = m.vision.pixel_words();
  s.projected = micro * m.projected_rows();
  s.modules = m.modules();
  if (m.has_relative_positions()) s.buckets = m.relative_buckets;
  s.hidden = m.hidden;
  const layout::Slice heads = shard.part(m.heads);
  s.heads = heads.extent;
  s.group = m.heads_per_group();
  s.key_value_heads = shard.groups(m.heads / s.group, s.group).extent;
  s.heads_before = heads.offset % s.group;
  s.head_size = m.head_size();
  s.vocabulary_part = shard.vocabulary_part(m.vocabulary);
  s.vocabulary = s.vocabulary_part.extent;
  s.targets =
      m.predicts_masked_tokens() ? shard.context_part(micro * m.targets()).extent : s.tokens;
  s.logit_block = logit_block_rows(s.targets, m.vocabulary, logit_elements);
  s.pairs = m.has_sentence_head() ? shard.context_part(micro).extent : 0;
  s.head_rows = m.predicts_masked_tokens() ? micro * (m.targets() + (m.has_sentence_head() ? 1 : 0))
                                           : s.targets;
  s.tensor_rank = shard.tensor_rank;
  s.tensor_ranks = shard.tensor_size;
  s.expert_rank = shard.expert_rank;
  s.expert_ranks = shard.expert_size;
  s.expert_batches = shard.expert_batches;
  return s;
}

RankSizes RankSizes::of(Stream stream) const {
  if (stream == Stream::tokens) return *this;
  RankSizes n = *this;
  n.micro = source.micro;
  n.sequence = n.longest = source.sequence;
  n.tokens = source.tokens;
  n.rows = source.rows;
  n.slice = source.slice;
  n.hidden = source.hidden;
  n.heads = source.heads;
  n.key_value_heads = source.key_value_heads;
  n.group = source.group;
  n.heads_before = source.heads_before;
  n.head_size = source.head_size;
  return n;
}

}  // namespace trireme::architecture
