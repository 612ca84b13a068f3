#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Limits of the tokens that an expert processes (Shazeer et al. 2017, arXiv 1701.06538; Lepikhin
/// et al. 2020, arXiv 2006.16668). The limit is per sample, so that neither the micro-batch nor the
/// layout of the ranks decides which routes are dropped. Asynchronous on exec. Templates are
/// instantiated for float and double; routes [T, 2k] as in experts.hpp.
namespace trireme::kernels {

/// The chunks of consecutive tokens of each sample that a rank holds (layout::TokenPlaces), and
/// their places among all chunks of the sample.
struct SampleChunks {
  std::int64_t tokens = 0;  ///< of each sample on this rank
  std::int64_t head = 0;    ///< tokens of the first chunk; the others are the second chunk
  std::int64_t first = 0;   ///< place of the first chunk
  std::int64_t second = 0;  ///< place of the second chunk
  std::int64_t count = 1;   ///< chunks of a sample
};

/// Leaves rows of padding out of a mixture of experts: their weights and scores become 0, as do
/// their sums (of log_sums_of_exponentials; may be empty), and their experts no_expert. tokens [T]:
/// 0 in rows of padding. routes [T, 2k], scores [T, E].
template <class A>
void leave_out_padding(const Exec& exec, View2<A> routes, View2<A> scores, View1<A> sums,
                       View1<const std::int32_t> tokens);

/// Most routes of a sample to an expert.
struct TokenLimit {
  std::int64_t most = 0;  ///< of samples without padding
  /// With padding, the limit is ⌈capacity · k / E · tokens⌉, at most `tokens`.
  double capacity = 0;
  View1<const std::int32_t> tokens = {};  ///< [T] as in SampleRows; empty: no padding

  TokenLimit(std::int64_t limit) : most(limit) {}
  TokenLimit(double relative, View1<const std::int32_t> of_rows)
      : capacity(relative), tokens(of_rows) {}
};

/// counts[b · count + i, e] = number of tokens in chunk i of sample b that chose expert e, if this
/// rank has the chunk, otherwise 0. counts [B · count, E].
template <class A>
void count_chunks(const Exec& exec, View2<A> counts, View2<const A> routes,
                  const SampleChunks& chunks);

/// Drops the routes of a sample to an expert e after the first `limit` routes, in the order of the
/// sample's tokens: their number becomes −1 − e. Their weights stay. counts [B · count, E]: the
/// results of count_chunks, summed over the ranks; overwritten.
template <class A>
void drop_routes(const Exec& exec, View2<A> routes, View2<A> counts, const SampleChunks& chunks,
                 const TokenLimit& limit);

/// sum [1] += number of dropped routes, which rows of padding do not have.
template <class A>
void count_dropped(const Exec& exec, View1<double> sum, View2<const A> routes);

}  // namespace trireme::kernels
