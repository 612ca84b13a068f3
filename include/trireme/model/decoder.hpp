#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/model/block.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::model {

/// A row of a Decoder's pass: a token of a cached text, or no token if `text` is negative.
struct CachedToken {
  std::int32_t text = -1;
  std::int32_t token = 0;
  std::int32_t position = 0;
  bool operator==(const CachedToken&) const = default;
};

/// Width of a pass: `narrow` has Decoder::Sizes::rows rows and may compute logits; `wide` has
/// wide_rows rows and computes no logits.
enum class PassWidth : std::uint8_t { narrow, wide };
inline constexpr std::int64_t wide_rows = 64;

/// Runs this rank's layers on single tokens with a cache of keys and values, for generation: a new
/// token costs a pass over one row instead of a pass over the whole text. The rows of a pass are
/// tokens of any of the cached texts, at any positions, such as consecutive tokens of a prompt or
/// the next tokens of several texts.
template <class P>
class Decoder {
 public:
  using T = typename P::Compute;

  struct Sizes {
    std::int64_t texts = 1;  ///< B, number of texts in the cache
    std::int64_t rows = 1;   ///< number of rows of a narrow pass
  };

  /// `parameters` holds one stage of the model. Arguments must outlive the decoder.
  Decoder(const architecture::Architecture& architecture, const Parameters<P>& parameters,
          grid::Communicator& tensor, const Sizes& sizes);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool has_head() const { return shard_.has_head(); }

  /// x [R, D]: before run(), the previous stage's output, which the first stage does not need;
  /// afterwards, this stage's output.
  View2<T> x(PassWidth width) const { return pass(width).x; }
  /// Logits [R, V] of this rank's part of the vocabulary, after a narrow pass `with_logits`.
  View2<Accumulate<T>> logits() const { return logits_; }

  /// Computes x for `rows`, and logits() if `with_logits` is set and this rank has the head. The
  /// remaining rows of the pass have no token. The positions of a text must be passed in order,
  /// from 0 on. Waits for the copy of `rows` to the device. Collective on the tensor axis.
  void run(const Handle& handle, std::span<const CachedToken> rows, PassWidth width,
           bool with_logits);

 private:
  /// State that depends on the number of rows.
  struct Pass {
    Pass(const architecture::Architecture& architecture, const Parameters<P>& parameters,
         grid::Communicator& tensor, std::int64_t rows);
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

    const architecture::RankSizes& sizes() const { return plans.front().sizes; }

    TensorAxis axis;
    std::vector<BlockPlan> plans;         ///< by kind of block
    std::unique_ptr<Block<P>> embedding;  ///< null if another rank has the embedding
    std::vector<std::unique_ptr<Block<P>>> layers;
    BlockMemory memory = {};
    BlockScratch<P> scratch = {};
    View2<T> x;                         // [R, D]
    View2<T> queries;                   // [R, H·K]
    View2<std::int32_t> rows;           // [3, R]: texts, tokens, positions
    std::vector<std::int32_t> on_host;  ///< host copy of `rows`
  };

  const Pass& pass(PassWidth width) const { return *passes_[static_cast<std::size_t>(width)]; }
  void take_memory(Arena& arena);

  deck::ModelConfig model_;
  architecture::Shard shard_;
  std::int64_t texts_;
  std::array<std::unique_ptr<Pass>, 2> passes_;
  BlockPlan head_plan_;
  std::unique_ptr<Block<P>> head_;  ///< null if another rank has the head
  Arena memory_;
  std::vector<View3<T>> keys_;    // per layer [B, S, Hkv·K]
  std::vector<View3<T>> values_;  // per layer [B, S, Hkv·K]
  View2<Accumulate<T>> logits_;
  BlockMemory head_memory_;
};

}  // namespace trireme::model
