#pragma once

#include <array>
#include <cstdint>
#include <string_view>

/// Rows and columns of a block's tensors, in terms of the sizes of the block. A description states
/// the sizes of the whole model; a rank's part follows from its RankSizes.
namespace trireme::architecture {

struct RankSizes;

/// Rows of the residual streams: those of the model's tokens, or of the source that an encoder
/// reads, which is a text or images.
enum class Stream : std::uint8_t { tokens, source };

/// Division of a size among the ranks.
enum class Divide : std::uint8_t {
  none,        ///< every rank has all
  evenly,      ///< layout::split()
  groups,      ///< each rank has the groups of its elements: see Shard::groups()
  experts,     ///< evenly, also among the replicas that divide the experts
  replicas,    ///< evenly among these replicas, but not among the tensor ranks
  vocabulary,  ///< evenly, also among the pipeline ranks that share the vocabulary
  ranks        ///< every rank has the sizes of all ranks, one after the other
};

/// A size of the whole model.
struct Size {
  std::int64_t all = 0;
  Divide divide = Divide::none;
  std::int64_t group = 1;  ///< for `groups`: elements of a group

  bool operator==(const Size&) const = default;
};
/// A rank's part of a size: index of its first element, and number of its elements.
std::int64_t first_of(const Size& size, const RankSizes& sizes);
std::int64_t held(const Size& size, const RankSizes& sizes);

/// Columns of a tensor: one to three parts beside one another, each of which is a multiple of a
/// size. Examples are queries, keys and values, or the two halves of a gated product.
struct Columns {
  struct Part {
    Size size;
    std::int64_t unit = 1;  ///< columns of an element of the size

    bool operator==(const Part&) const = default;
  };
  std::string_view symbol = "1";  ///< in messages: "(H + 2 Hkv) K"
  std::array<Part, 3> parts = {Part{{1}}};

  bool operator==(const Columns&) const = default;
  /// Whether rows begin at multiples of 64 bytes, because matrix products are slowest with rows of
  /// an odd length, such as a vocabulary of 50257 ids.
  bool is_padded() const { return parts[0].size.divide == Divide::vocabulary; }
};
constexpr Columns fixed_columns(std::string_view symbol, std::int64_t n) {
  return {symbol, {Columns::Part{{n}}}};
}
/// `parts` equal parts of n columns each, which the tensor axis divides.
constexpr Columns divided_columns(std::string_view symbol, std::int64_t n, int parts = 1) {
  Columns columns{symbol, {}};
  for (std::size_t i = 0; i < static_cast<std::size_t>(parts); ++i)
    columns.parts[i] = {{n, Divide::evenly}};
  return columns;
}
constexpr Columns vocabulary_columns(std::int64_t n) {
  return {"V", {Columns::Part{{n, Divide::vocabulary}}}};
}

std::int64_t columns_of(const Columns& columns, const RankSizes& sizes);
/// Columns of one part.
std::int64_t columns_of(const Columns::Part& part, const RankSizes& sizes);
/// Columns on all tensor ranks together.
std::int64_t all_columns_of(const Columns& columns);

/// Rows of a tensor.
struct Rows {
  enum Kind : std::uint8_t {
    tokens,   ///< T, all tokens of the micro-batch
    own,      ///< R, this rank's rows of the residual stream: a part of T with sequence parallelism
    targets,  ///< N, predicted tokens: all tokens, or the masked tokens
    pairs,    ///< B, one per sample
    /// N + B, or N without a loss of pairs: rows that the head of masked tokens picks, including
    /// the rows of the other context ranks.
    head_rows,
    logit_block,  ///< N', predicted tokens whose logits are computed at a time
    samples,      ///< B
    /// T e: the tokens of the e replicas that divide the experts among them. At most as many have
    /// an expert on this rank; the actual number of rows depends on the data, here and for `sent`
    /// and `routed`. At least T: the same memory holds sums of this rank's own tokens.
    received,
    /// T min(k, e): the most copies of T tokens that this rank sends to the replicas with their
    /// experts; 0 if e = 1, here and below.
    sent,
    exchanged,        ///< T
    received_copies,  ///< T e
    copy_bounds,      ///< 2 (e + 1)
    /// T e min(k, E'): the most choices of this rank's E' experts by T e tokens that choose k
    /// experts each. With a limit C: at most E' C per sample.
    routed,
    /// ⌈f T e k E' / E⌉, at most as many as `routed`: rows of a round, f times the mean.
    round,
    bounds,  ///< E' + 1
    chunks,  ///< B, or 2 c B on c > 1 context ranks: consecutive tokens of a sample on a rank
    /// T' and R': tokens and own rows of the source, in blocks of the other stream.
    source_tokens,
    source_own,
    projected,    ///< all rows that a projector that pools makes of the images, on every rank
    pixel_words,  ///< words of four bytes that hold the pixels of the micro-batch's images
    buckets,      ///< classes of distances between tokens
    none          ///< 0: a tensor that the model does not need
  };
  Kind kind = tokens;
  Size experts = {};        ///< E, for rows that depend on the experts
  std::int64_t active = 0;  ///< k, likewise
  /// C, the most tokens of a sample that an expert processes; 0: all. For `received`, `routed` and
  /// `round`.
  std::int64_t limit = 0;
  double of_mean = 0;  ///< f, for `round`

  constexpr Rows(Kind of = tokens) : kind(of) {}  // NOLINT: rows of most tensors are only a kind
  constexpr Rows(Kind of, Size all_experts, std::int64_t k = 0, std::int64_t most = 0, double f = 0)
      : kind(of), experts(all_experts), active(k), limit(most), of_mean(f) {}
  bool operator==(const Rows&) const = default;
  bool operator==(Kind other) const { return kind == other; }
};

std::int64_t rows_of(const Rows& rows, const RankSizes& sizes);
/// Rows on all tensor ranks together; for logit_block, the rows of all blocks; for `received`, the
/// T rows of this replica. Other tensors of experts are not sent among tensor ranks: their rows are
/// those of this rank.
std::int64_t all_rows_of(const Rows& rows, const RankSizes& sizes);
/// Rows on this rank if all experts are used equally: differs from rows_of() for `routed`, with
/// T e k E' / E rows, and for `received` and `sent`, if a token chooses k of E experts.
std::int64_t mean_rows_of(const Rows& rows, const RankSizes& sizes);

}  // namespace trireme::architecture
