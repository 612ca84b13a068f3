// attention_forward: checks the shape and calls the first enabled back end that supports the call;
// the portable back end supports every call.
#include <trireme/kernels/attention.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/attention_cudnn.hpp>
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/group_kernels.hpp>
#include <trireme/kernels/portable_attention_forward.hpp>
#include <trireme/tensor/expect.hpp>

#include <cmath>

namespace trireme::kernels {

AttentionShape resolved(const AttentionShape& shape) {
  check(shape.batch >= 0 && shape.sequence >= 0, "attention over ", shape.batch, " samples of ",
        shape.sequence, " tokens, expected 0 or more");
  check(shape.head_size >= 1, "attention with head size ", shape.head_size, ", expected 1 or more");
  const std::int64_t groups = shape.key_value_heads;
  AttentionShape result = shape;
  check(shape.heads >= 0 && groups >= 0, "attention with ", shape.heads, " heads over ", groups,
        " key and value heads, expected 0 or more");
  if (shape.group == 0) {
    check(groups == 0 ? shape.heads == 0 : shape.heads % groups == 0, "attention with ",
          shape.heads, " heads over ", groups,
          " key and value heads, expected a divisor of the heads");
    result.group = shape.heads == 0 ? 1 : shape.heads / groups;
  }
  const std::int64_t group = result.group;
  check(group >= 1 && shape.heads_before >= 0 && shape.heads_before < group &&
            (shape.heads == 0 || (shape.heads_before + shape.heads + group - 1) / group == groups),
        "attention with ", shape.heads, " heads in groups of ", group, ", the first without ",
        shape.heads_before, ", over ", groups,
        " key and value heads, expected the number that these heads use");
  check(shape.window == 0 || (shape.window > 0 && shape.causal), "attention with a window of ",
        shape.window, " tokens", shape.causal ? "" : " without a causal mask",
        "; expected 1 or more tokens and a causal mask, or 0 for no window");
  check(shape.cap >= 0, "attention with a soft cap of ", shape.cap, ", expected 0 or more");
  check(!shape.has_documents() || shape.causal,
        "attention to documents without a causal mask; expected a causal mask");
  if (shape.has_documents()) expect_shape(shape.positions, "positions", {shape.tokens()});
  if (result.window >= shape.sequence) result.window = 0;
  if (result.scale == 0.0) result.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_size));
  return result;
}

AttentionMasks::AttentionMasks(const AttentionDropout& of, const AttentionShape& shape)
    : dropout(of),
      sequence(shape.sequence),
      threshold(static_cast<std::uint32_t>(of.rate * 4294967296.0)),
      active(of.rate > 0.0) {
  check(of.rate >= 0.0 && of.rate < 1.0, "attention dropout ", of.rate, ", expected 0 <= rate < 1");
  if (dropout.all_heads == 0) dropout.all_heads = shape.heads;
}

template <class T>
void attention_forward(const Handle& handle, View2<T> o, View3<Accumulate<T>> logsumexp,
                       View2<const T> qkv, const AttentionShape& shape,
                       const AttentionDropout& dropout) {
  const AttentionShape s = resolved(shape);
  expect_shape(o, "o", {s.tokens(), s.heads * s.head_size});
  expect_shape(logsumexp, "logsumexp", {s.batch, s.heads, s.sequence});
  expect_shape(qkv, "qkv", {s.tokens(), s.qkv_columns()});
  if (s.tokens() * s.heads == 0) return;
  const AttentionMasks masks(dropout, s);
  if constexpr (is_narrow<T>) {
    const AttentionBackend backend = handle.choice().attention(dtype_of<T>).forward;
    if (backend == AttentionBackend::cudnn &&
        attention_forward_cudnn<T>(handle, o, logsumexp, qkv, s, dropout))
      return;
    if (backend != AttentionBackend::portable && group_kernels_available() &&
        group_forward_takes(s, {o.data(), qkv.data()}, {row_stride(o), row_stride(qkv)}))
      return group_attention_forward<T>(handle, handle.stream(), o, logsumexp, qkv, s, dropout);
    if (backend != AttentionBackend::portable && flash_available() &&
        flash_takes(s, {o.data(), qkv.data()}, {row_stride(o), row_stride(qkv)}))
      return flash_attention_forward<T>(handle, o, logsumexp, qkv, s, dropout);
  }
  AttentionForward<T> forward(o, logsumexp, qkv, s, masks);
  forward.native = handle.choice().attention(dtype_of<T>).forward == AttentionBackend::native;
  attention_forward_by_blocks<T>(handle, forward);
}

template <class T>
void attention_forward_by_blocks(const Exec& exec, const AttentionForward<T>& forward) {
  const AttentionRange& s = forward.shape;
  const auto teams = static_cast<int>(s.batch * s.heads * forward.query_teams);
  const auto bytes = aligned_scratch_bytes<Accumulate<T>>(forward.scratch_elements());
  auto policy = AttentionPolicy(exec, teams, team_threads(exec))
                    .set_scratch_size(1, Kokkos::PerTeam(static_cast<int>(bytes)));
  Kokkos::parallel_for("kernels/attention_forward", policy, forward);
}

#define TRIREME_INSTANTIATE(T)                                                           \
  template void attention_forward_by_blocks<T>(const Exec&, const AttentionForward<T>&); \
  template void attention_forward<T>(const Handle&, View2<T>, View3<Accumulate<T>>,      \
                                     View2<const T>, const AttentionShape&,              \
                                     const AttentionDropout&)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
