#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/model/embedding.hpp>
#include <trireme/model/head.hpp>
#include <trireme/model/layer.hpp>

#include <vector>

namespace trireme::model {

/// Runs the model token by token with a cache of keys and values, for generation. Each token costs
/// one pass over the weights instead of a pass over the whole text.
template <class P>
class Decoder {
 public:
  using T = typename P::Compute;

  /// Decodes `rows` texts at a time. `parameters` holds the whole model. Arguments must outlive the
  /// decoder, which must not be moved.
  Decoder(const architecture::Architecture& architecture, const Parameters<P>& parameters,
          std::int64_t rows);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  std::int64_t rows() const { return rows_; }
  /// Number of tokens fed so far; at most the model's sequence length.
  std::int64_t position() const { return position_; }
  void reset() { position_ = 0; }

  View1<std::int32_t> tokens() const { return tokens_; }   // [B] the next token of each text
  View2<Accumulate<T>> logits() const { return logits_; }  // [B, V] after the last step

  /// Feeds tokens() at position(); computes logits() if `with_logits`. Asynchronous.
  void step(const Handle& handle, bool with_logits);

 private:
  void take_memory(Arena& arena);

  deck::ModelConfig model_;
  architecture::Shard shard_;
  std::int64_t rows_;
  std::int64_t position_ = 0;
  TensorAxis axis_;
  Embedding<P> embedding_;
  LayerPlan plan_;
  std::vector<std::unique_ptr<Layer<P>>> layers_;
  Head<P> head_;
  Arena memory_;
  std::vector<View3<T>> keys_;    // per layer [B, S, Hkv·K]
  std::vector<View3<T>> values_;  // per layer [B, S, Hkv·K]
  View1<std::int32_t> tokens_;
  View2<Accumulate<T>> logits_;
  LayerMemory row_;
  LayerScratch<P> scratch_;
  View2<T> queries_;  // [B, H·K]
  typename Head<P>::Saved head_row_;
};

}  // namespace trireme::model
