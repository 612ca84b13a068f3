#pragma once

#include <trireme/architecture/shard.hpp>
#include <trireme/model/tensor_axis.hpp>

#include <cstdint>

namespace trireme::model {

/// The sizes of a micro-batch in this rank's part of the model.
struct Sizes {
  std::int64_t batch = 0;         ///< B
  std::int64_t sequence = 0;      ///< S
  std::int64_t tokens = 0;        ///< T = B S
  std::int64_t rows = 0;          ///< R: those of them that this rank's norms see
  std::int64_t hidden = 0;        ///< D
  std::int64_t heads = 0;         ///< H, of this rank
  std::int64_t head_size = 0;     ///< K
  std::int64_t feed_forward = 0;  ///< F, of this rank
  std::int64_t vocabulary = 0;    ///< V, of this rank
  bool cuts_tokens = false;       ///< R is less than T: gathered tokens need memory of their own

  std::int64_t attention() const { return heads * head_size; }  ///< H K
};

inline Sizes sizes_of(const deck::ModelConfig& model, const architecture::Shard& shard,
                      const TensorAxis& axis, std::int64_t batch, std::int64_t sequence) {
  Sizes s;
  s.batch = batch;
  s.sequence = sequence;
  s.tokens = batch * sequence;
  s.rows = axis.cuts_tokens() ? axis.rows().extent : s.tokens;
  s.hidden = model.hidden;
  s.heads = shard.part(model.heads).extent;
  s.head_size = model.head_size();
  s.feed_forward = shard.part(model.feed_forward).extent;
  s.vocabulary = shard.part(model.vocabulary).extent;
  s.cuts_tokens = axis.cuts_tokens();
  return s;
}

}  // namespace trireme::model
