#pragma once

#include <trireme/base/philox.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/handle.hpp>

#include <cstdint>
#include <span>

namespace trireme::model {

using kernels::Handle;

/// The fields of a micro-batch by their index in the objective; empty if a stage does not read
/// them.
using BatchFields = std::span<const View1<std::int32_t>>;

/// Parameters of a pass over one micro-batch. All are global quantities, so that the layout does
/// not change the result.
struct MicroContext {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::int64_t first_sample = 0;  ///< index of the first sample in the global batch
  std::int64_t sequence = 0;
  double dropout = 0;         ///< 0 in evaluation
  double token_weight = 1;    ///< weight of a token's loss: 1 / counted tokens of the global batch
  bool notes_maxima = false;  ///< record the maxima of fp8 tensors: in training steps
  View1<const double> loss_scale;  ///< [1] factor of the loss, or empty for 1
  int version = 0;                 ///< version of weights and gradients; 1: second parameters
  double adapter_dropout = 0;      ///< dropout of adapters' inputs; 0 in evaluation
  View2<double> scores = {};       ///< [T, 2] row_scores() of an evaluation's rows; empty: none
  View1<const std::int32_t> positions = {};  ///< [T] positions in packed documents, or empty
  BatchFields fields = {};                   ///< fields of the micro-batch
  View1<double> losses = {};                 ///< [terms] sums of the objective's losses
  /// In evaluations: the number of samples whose losses count; −1 in training.
  std::int64_t samples = -1;

  bool evaluates() const { return samples >= 0; }

  /// Mask of a dropout site on the rows at `places`: `stream` is 0 for the embedding, 1 + 2·layer
  /// and 2 + 2·layer for the outputs of attention and feed-forward.
  kernels::Dropout dropout_site(std::uint32_t stream, const layout::TokenPlaces& places) const {
    return {dropout, RandomKey{seed, Purpose::dropout, stream, step}, first_sample * sequence,
            places};
  }

  static constexpr std::uint32_t adapter_streams = std::uint32_t{1} << 31;
  /// Mask of an adapter's input: `site` numbers the products of all layers. These streams are above
  /// the streams of dropout_site.
  kernels::Dropout adapter_site(std::uint32_t site, const layout::TokenPlaces& places,
                                const layout::Slice& columns, std::int64_t all) const {
    return {adapter_dropout,
            RandomKey{seed, Purpose::dropout, adapter_streams + site, step},
            first_sample * sequence,
            places,
            all,
            columns.offset};
  }
};

}  // namespace trireme::model
