#pragma once

#include <trireme/architecture/shard.hpp>

#include <cstdint>

namespace trireme::architecture {

/// Sizes of the source's residual stream on a rank, with the meanings of RankSizes. `micro`:
/// sources of a micro-batch, of `sequence` rows each.
struct StreamSizes {
  std::int64_t micro = 0, sequence = 0, tokens = 0, rows = 0, slice = 0;
  std::int64_t hidden = 0, heads = 0, key_value_heads = 0, group = 1, heads_before = 0;
  std::int64_t head_size = 0;
};

/// Dimensions of one rank's part of a micro-batch.
struct RankSizes {
  std::int64_t micro = 0;        ///< B: samples of a micro-batch
  std::int64_t sequence = 0;     ///< S, tokens of each sample on this context rank
  std::int64_t tokens = 0;       ///< T = B·S: tokens that matrix products read
  std::int64_t rows = 0;         ///< R: tokens in this rank's residual stream: T, or a part of T
  std::int64_t slice = 0;        ///< tokens that this rank sends to another stage
  StreamSizes source;            ///< sizes of the source; 0 without an encoder
  std::int64_t pixel_words = 0;  ///< of a sample: see Rows::pixel_words
  std::int64_t projected = 0;    ///< see Rows::projected
  std::int64_t modules = 0;      ///< values of modules that predict further tokens
  std::int64_t buckets = 0;      ///< classes of distances of relative positions; 0: none
  std::int64_t hidden = 0;       ///< D
  std::int64_t heads = 0;        ///< H on this rank
  std::int64_t key_value_heads = 0;  ///< Hkv on this rank
  std::int64_t group = 1;            ///< query heads per head of keys and values
  /// Query heads of this rank's first group that lower tensor ranks hold.
  std::int64_t heads_before = 0;
  std::int64_t head_size = 0;     ///< K
  std::int64_t vocabulary = 0;    ///< V on this rank: vocabulary_part.extent
  layout::Slice vocabulary_part;  ///< ids of the vocabulary on this rank
  std::int64_t targets = 0;       ///< predicted tokens: rows of all logits
  std::int64_t logit_block = 0;   ///< rows of logits computed at a time
  std::int64_t pairs = 0;         ///< pairs that the sentence head of this context rank classifies
  /// Rows that the head of masked tokens picks, from all context ranks.
  std::int64_t head_rows = 0;
  std::int64_t tensor_rank = 0;
  std::int64_t tensor_ranks = 1;  ///< P
  std::int64_t expert_rank = 0;
  std::int64_t expert_ranks = 1;    ///< e
  std::int64_t expert_batches = 1;  ///< micro-batches of these ranks: see ParallelConfig
  std::int64_t context_ranks = 1;   ///< c
  std::int64_t longest = 0;         ///< tokens of each sample on the context rank that has the most
  bool cuts_tokens = false;         ///< sequence parallelism on several tensor ranks: R < T

  /// The sizes of blocks of a stream.
  RankSizes of(Stream stream) const;
  std::int64_t attention() const { return heads * head_size; }         ///< H·K
  std::int64_t groups() const { return key_value_heads * head_size; }  ///< Hkv·K

  /// Elements of the largest block of keys and values, or of their gradients, in the ring of the
  /// context axis.
  std::int64_t ring_block() const { return micro * longest * 2 * groups(); }
  /// Elements of the scratch of attention over a context axis: blocks of keys and values, and sums.
  /// `narrow`: two-byte activations.
  std::int64_t ring_values() const { return context_ranks > 1 ? 2 * ring_block() : 0; }
  std::int64_t ring_sums(bool training, bool narrow) const {
    if (context_ranks == 1) return 0;
    return (training ? 3 * ring_block() + tokens * heads : 0) + (narrow ? tokens * attention() : 0);
  }
};

/// `sequence`: tokens of a whole sample. `logit_elements`: elements of a block of logits
/// (placement.hpp).
RankSizes rank_sizes(const deck::ModelConfig& model, const Shard& shard, std::int64_t micro,
                     std::int64_t sequence, bool sequence_parallel, std::int64_t logit_elements);

}  // namespace trireme::architecture
