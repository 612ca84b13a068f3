// Attention of some queries to some keys by the portable kernels, and copies between rows of qkv
// and the blocks of keys, values and gradients that a ring of ranks sends.
#include <trireme/kernels/attention_range.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/kernels/portable_attention_backward.hpp>
#include <trireme/kernels/portable_attention_forward.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {
namespace {

void expect_no_biases(const AttentionRange& part) {
  check(!part.has_biases() && !part.has_key_ranges(),
        "attention by parts with biases or ranges of keys, expected neither");
}

}  // namespace

template <class T>
void attention_part_forward(const Handle& handle, View2<T> o, View1<Accumulate<T>> sums,
                            View3<Accumulate<T>> logsumexp, View2<const T> qkv,
                            View2<const T> key_value, const AttentionRange& part, bool first,
                            const AttentionDropout& dropout) {
  if (part.batch * part.heads == 0 || !part.is_seen()) return;
  expect_no_biases(part);
  const std::int64_t rows = part.batch * part.queries.rows;
  const std::int64_t columns = part.heads * part.head_size;
  expect_shape(o, "o", {rows, columns});
  expect_shape(logsumexp, "logsumexp", {part.batch, part.heads, part.queries.rows});
  expect_shape(qkv, "qkv", {rows, part.qkv_columns()});
  if (part.has_documents()) expect_shape(part.positions, "positions", {rows});
  expect_shape(key_value, "key_value",
               {part.batch * part.keys.rows, 2 * part.key_value_heads * part.head_size});
  AttentionForward<T> forward(o, logsumexp, qkv, key_value, part, AttentionMasks(dropout, part));
  forward.merges = !first;
  forward.native = handle.choice().attention(dtype_of<T>).forward == AttentionBackend::native;
  if constexpr (is_narrow<T>) {
    expect_shape(sums, "sums", {rows * columns});
    forward.sums = sums.data();
  }
  attention_forward_by_blocks<T>(handle, forward);
}

template <class T>
void attention_part_backward(const Handle& handle, View2<T> dqkv, View1<Accumulate<T>> sums,
                             View2<Accumulate<T>> dkey_value, View2<const T> grad,
                             View2<const T> qkv, View2<const T> key_value,
                             View3<const Accumulate<T>> logsumexp, View1<const Accumulate<T>> delta,
                             const AttentionRange& part, bool first,
                             const AttentionDropout& dropout) {
  if (part.batch * part.key_value_heads == 0 || !part.is_seen()) return;
  expect_no_biases(part);
  const std::int64_t rows = part.batch * part.queries.rows;
  const std::int64_t columns = part.heads * part.head_size;
  const std::int64_t key_columns = 2 * part.key_value_heads * part.head_size;
  expect_shape(dqkv, "dqkv", {rows, part.qkv_columns()});
  expect_shape(dkey_value, "dkey_value", {part.batch * part.keys.rows, key_columns});
  expect_shape(grad, "grad", {rows, columns});
  expect_shape(qkv, "qkv", {rows, part.qkv_columns()});
  if (part.has_documents()) expect_shape(part.positions, "positions", {rows});
  expect_shape(key_value, "key_value", {part.batch * part.keys.rows, key_columns});
  expect_shape(logsumexp, "logsumexp", {part.batch, part.heads, part.queries.rows});
  expect_shape(delta, "delta", {rows * part.heads});
  if constexpr (is_narrow<T>) expect_shape(sums, "sums", {rows * columns});
  const AttentionBackward<T> backward{
      dqkv,
      {},
      grad,
      qkv,
      key_value,
      logsumexp,
      delta,
      part,
      AttentionMasks(dropout, part),
      HeadSizes<Accumulate<T>>(part.head_size),
      sums.data(),
      dkey_value,
      !first,
      handle.choice().attention(dtype_of<T>).backward == AttentionBackend::native};
  if constexpr (exec_on_host)
    attention_backward_by_heads<T>(handle, backward);
  else
    attention_backward_by_blocks<T>(handle, backward);
}

template <class T>
void copy_columns(const Exec& exec, View2<T> to, View2<const T> from, std::int64_t first) {
  const std::int64_t columns = extent(to, 1);
  expect_shape(to, "to", {extent(from, 0), columns});
  for_rows(
      "kernels/copy_columns", exec, extent(to, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const T* source = row_of(from, r) + first;
        copy_lanes(team, columns, row_of(to, r), source);
      });
}

template <class T>
void place_columns(const Exec& exec, View2<T> to, View2<const Accumulate<T>> from,
                   std::int64_t first) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(from, 1);
  expect_shape(from, "from", {extent(to, 0), columns});
  for_rows(
      "kernels/place_columns", exec, extent(to, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const Acc* source = row_of(from, r);
        T* target = row_of(to, r) + first;
        for_lanes(team, columns, [&](std::int64_t d) { target[d] = static_cast<T>(source[d]); });
      });
}

#define TRIREME_INSTANTIATE(T)                                                                   \
  template void attention_part_forward<T>(const Handle&, View2<T>, View1<Accumulate<T>>,         \
                                          View3<Accumulate<T>>, View2<const T>, View2<const T>,  \
                                          const AttentionRange&, bool, const AttentionDropout&); \
  template void attention_part_backward<T>(                                                      \
      const Handle&, View2<T>, View1<Accumulate<T>>, View2<Accumulate<T>>, View2<const T>,       \
      View2<const T>, View2<const T>, View3<const Accumulate<T>>, View1<const Accumulate<T>>,    \
      const AttentionRange&, bool, const AttentionDropout&);                                     \
  template void copy_columns<T>(const Exec&, View2<T>, View2<const T>, std::int64_t);            \
  template void place_columns<T>(const Exec&, View2<T>, View2<const Accumulate<T>>, std::int64_t);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
