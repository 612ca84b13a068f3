#include <trireme/architecture/placement.hpp>
#include <trireme/plan/local_sizes.hpp>

namespace trireme::plan {

LocalSizes local_sizes(const deck::Config& config, const architecture::Shard& shard) {
  const deck::ModelConfig& m = config.model;
  LocalSizes s;
  s.micro = config.batch.micro;
  s.sequence = m.sequence;
  s.tokens = s.micro * s.sequence;
  s.slice = shard.part(s.tokens).extent;
  s.cuts_tokens = config.parallel.sequence_parallel && shard.tensor_size > 1;
  s.rows = s.cuts_tokens ? s.slice : s.tokens;
  s.hidden = m.hidden;
  s.heads = shard.part(m.heads).extent;
  s.head_size = m.head_size();
  s.feed_forward = shard.part(m.feed_forward).extent;
  s.vocabulary = shard.part(m.vocabulary).extent;
  s.logit_block = architecture::logit_block_rows(s.tokens, m.vocabulary);
  s.element = size_of(config.precision.compute);
  s.accumulate = s.element == 8 ? 8 : 4;
  return s;
}

}  // namespace trireme::plan
