#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/objective.hpp>
#include <trireme/model/block.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::model {

/// A row of a Decoder's pass: a token of a cached text or of its source, or no token if `text` is
/// negative.
struct CachedToken {
  std::int32_t text = -1;
  std::int32_t token = 0;
  std::int32_t position = 0;
  std::int32_t image_row = -1;  ///< row of its image among those of the text's images; −1: none
  /// One past the last position that it sees; 0: its own position is the last.
  std::int32_t end = 0;
  bool operator==(const CachedToken&) const = default;
};

/// Width of a pass: `narrow` has Decoder::Sizes::rows rows and may compute logits; `wide` has
/// rows_of_wide_pass() rows and computes no logits. A model with an encoder has passes over sources
/// instead of `wide`: `source` has wide_rows rows, or fewer if the encoder reads fewer tokens, and
/// `long_source` as many rows as the encoder reads tokens. A model that sees images has a pass
/// `source` over the images of a text; if the tokens of an image see one another, they must be in
/// one pass.
enum class PassWidth : std::uint8_t { narrow, wide, source, long_source };
inline constexpr std::int64_t wide_rows = 64;
/// Rows of the pass `wide`: wide_rows, or more if an image must be in one pass.
inline std::int64_t rows_of_wide_pass(const deck::ModelConfig& model) {
  const bool whole = model.vision.present() && model.vision.sees_whole_images();
  return whole ? std::max(wide_rows, model.vision.tokens()) : wide_rows;
}

/// Runs this rank's layers on single tokens with a cache of keys and values, for generation: a new
/// token costs a pass over one row instead of a pass over the whole text. The rows of a pass are
/// tokens of any of the cached texts, at any positions, such as consecutive tokens of a prompt or
/// the next tokens of several texts.
///
/// With an encoder, a pass over sources computes the encoder's result, from which each layer of the
/// decoder computes the keys and values of its cross-attention once for each text.
template <class P>
class Decoder {
 public:
  using T = typename P::Compute;

  struct Sizes {
    std::int64_t texts = 1;     ///< B, number of texts in the cache
    std::int64_t rows = 1;      ///< number of rows of a narrow pass
    std::int64_t sequence = 0;  ///< S, tokens of a text in the cache; 0: of a sample
  };

  /// `parameters` holds one stage of the model. Arguments must outlive the decoder.
  Decoder(const architecture::Architecture& architecture, const Parameters<P>& parameters,
          grid::Communicator& tensor, const Sizes& sizes);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool has_head() const { return shard_.has_head(); }

  /// Before run(), the previous stage's output, which the first stage does not need; afterwards,
  /// this stage's output: x [R, D], or in a pass over sources the model's values
  /// (architecture::ModelValue).
  View1<T> message(PassWidth width) const { return pass(width).message; }
  /// Logits [R, V] of this rank's part of the vocabulary, after a narrow pass `with_logits`.
  View2<Accumulate<T>> logits() const { return logits_; }

  /// Computes message() for `rows`, and logits() if `with_logits` is set and this rank has the
  /// head. The remaining rows of the pass have no token. The positions of a text must be passed in
  /// order, from 0 on. A source must be in consecutive rows of one pass, before the passes over its
  /// text. Waits for the copy of `rows` to the device. Collective on the tensor axis.
  void run(const Handle& handle, std::span<const CachedToken> rows, PassWidth width,
           bool with_logits);
  /// The pass `source` of a model that sees images: computes the rows of a text's images, which the
  /// passes over its tokens read. `pixels`: deck::VisionConfig::pixel_words() words, with zeros for
  /// absent images. Waits for their copy to the device. Collective on the tensor axis.
  void see(const Handle& handle, std::int32_t text, std::span<const std::int32_t> pixels);

 private:
  /// State that depends on the number of rows.
  struct Pass {
    /// Exactly one of the numbers of rows is not 0.
    Pass(const architecture::Architecture& architecture, const Parameters<P>& parameters,
         grid::Communicator& tensor, std::int64_t rows, std::int64_t source_rows);
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

    const architecture::RankSizes& sizes() const { return plans.front().sizes; }
    bool reads_sources() const { return sizes().source.rows > 0; }
    std::int64_t count() const { return reads_sources() ? sizes().source.rows : sizes().rows; }
    /// Column `number` of the rows' values on the device.
    View1<const std::int32_t> column(std::int64_t number) const {
      return View1<const std::int32_t>(rows.data() + number * count(),
                                       static_cast<std::size_t>(count()));
    }

    TensorAxis axis;
    std::vector<BlockPlan> plans;         ///< by kind of block
    std::unique_ptr<Block<P>> embedding;  ///< null if another rank has the embedding
    std::vector<std::unique_ptr<Block<P>>> layers;
    BlockMemory memory = {};
    BlockScratch<P> scratch = {};
    View2<T> x;                         // [R, D], of the tokens or of the source
    View1<T> message;                   // x, or the model's values
    View2<T> queries;                   // [R, H·K]
    View2<std::int32_t> rows;           // [columns, R]: texts, tokens, positions, then see copy()
    std::vector<std::int32_t> on_host;  ///< host copy of `rows`
    View1<std::int32_t> pixels;         // of a pass over images
  };

  const Pass& pass(PassWidth width) const { return *passes_.at(static_cast<std::size_t>(width)); }
  void take_memory(Arena& arena);
  static std::int32_t end_of(std::span<const CachedToken> rows, std::size_t row);
  /// Whether tokens of an image see one another.
  bool sees_whole_images() const {
    return model_.vision.present() && model_.vision.sees_whole_images();
  }
  bool sees_images(const Pass& pass) const {
    return pass.reads_sources() && model_.vision.present();
  }
  /// Whether a layer of this rank is the projector of images.
  bool is_projector(const Pass& pass, std::size_t layer) const {
    return model_.is_projector(pass.layers[layer]->number() - architecture::block_of_layer(0));
  }
  /// Copies the rows of a pass to the device.
  void copy(const Handle& handle, Pass& pass, std::span<const CachedToken> rows);
  void embed(const Handle& handle, const Pass& pass, const Decoding<P>& decoding) const;
  /// Runs the layers of a pass over tokens, or over sources.
  void run_layers(const Handle& handle, const Pass& pass, const Decoding<P>& decoding) const;
  void encode(const Handle& handle, const Pass& pass, const Decoding<P>& decoding) const;
  View2<T> source(const Pass& pass) const;

  deck::ModelConfig model_;
  architecture::Shard shard_;
  architecture::TrainingObjective objective_;
  std::int64_t texts_;
  std::int64_t sequence_;
  std::size_t encoder_layers_ = 0;         ///< number of the encoder's layers, which are first
  std::vector<std::int32_t> source_ends_;  ///< by text: last position of its source
  std::array<std::unique_ptr<Pass>, 4> passes_;  ///< null for widths that the model does not have
  BlockPlan head_plan_;
  std::unique_ptr<Block<P>> head_;  ///< null if another rank has the head
  Arena memory_;
  /// Caches of a layer of the decoder: of the text [B, S, Hkv·K], and of the source [B, S', Hkv·K].
  struct Cache {
    View3<T> keys, values, source_keys, source_values;
  };
  std::vector<Cache> caches_;
  View2<T> image_rows_;  // [B I', D] rows of images of all texts; empty without the projector
  View2<Accumulate<T>> logits_;
  BlockMemory head_memory_;
};

}  // namespace trireme::model
