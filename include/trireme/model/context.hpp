#pragma once

#include <trireme/base/philox.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/handle.hpp>

#include <cstdint>
#include <span>

namespace trireme::model {

using kernels::Handle;

/// Fields of a micro-batch, by index in the objective; empty if the stage does not read them.
using BatchFields = std::span<const View1<std::int32_t>>;

/// Parameters of a pass over one micro-batch. Random numbers and the weights of losses follow from
/// global quantities, and do not depend on the layout.
struct MicroContext {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::int64_t first_sample = 0;  ///< index of the micro-batch's first sample in the global batch
  std::int64_t sequence = 0;
  double dropout = 0;         ///< dropout rate; 0 in evaluations
  double token_weight = 1;    ///< weight of a token's loss: 1 / counted tokens of the global batch
  double sample_weight = 0;   ///< 1 / samples of the global batch; 0 in evaluations
  bool notes_maxima = false;  ///< whether to record maxima of fp8 tensors; only in training steps
  View1<const double> loss_scale;  ///< [1] factor of the loss; empty: 1
  int version = 0;  ///< 0: first parameters; 1: second parameters, with their own gradients
  double adapter_dropout = 0;  ///< dropout rate of adapters' inputs; 0 in evaluations
  View2<double> scores = {};   ///< [T, 2] receives row_scores(); empty: no scores
  /// [T] positions in packed documents or, in generation, in texts; otherwise empty.
  View1<const std::int32_t> positions = {};
  /// [T] tokens of each row's sample, 0 in rows of padding; empty if samples have no padding.
  View1<const std::int32_t> sample_tokens = {};
  /// Mean number of tokens of the global batch's samples that are not padding; 0: all tokens.
  double mean_tokens = 0;
  BatchFields fields = {};  ///< fields of the micro-batch
  /// Sums of the objective's losses. Of a stage: empty means those of its scratch. In passes of
  /// blocks: empty means that losses are not added.
  View1<double> losses = {};
  /// In evaluations: the number of samples whose losses count; −1 in training.
  std::int64_t samples = -1;

  bool evaluates() const { return samples >= 0; }

  /// Dropout mask of the rows at `places`. `stream`: 0 for the embedding, 1 + 2·layer for the
  /// output of attention, 2 + 2·layer for the output of feed-forward.
  kernels::Dropout dropout_site(std::uint32_t stream, const layout::TokenPlaces& places) const {
    return {dropout, RandomKey{seed, Purpose::dropout, stream, step}, first_sample * sequence,
            places};
  }

  static constexpr std::uint32_t adapter_streams = std::uint32_t{1} << 31;
  /// Dropout mask of columns `columns` of an adapter's input, which has `all` columns. `site`:
  /// number of the adapted product, unique over all layers.
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
