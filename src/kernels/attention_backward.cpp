// attention_backward by the first enabled back end that supports the call.
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/attention_cudnn.hpp>
#include <trireme/kernels/attention_range.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/group_kernels.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/portable_attention_backward.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

/// delta[b,h,i] = Σ_d grad[t, h·K + d] o[t, h·K + d] = Σ_j p dp (Dao et al. 2022, eq. 4).
template <class T>
void attention_delta(const Exec& exec, View1<Accumulate<T>> delta, View2<const T> grad,
                     View2<const T> o, const AttentionShape& shape) {
  using A = Accumulate<T>;
  const std::int64_t heads = shape.heads;
  const std::int64_t sequence = shape.sequence;
  const std::int64_t size = shape.head_size;
  if (shape.tokens() * heads == 0) return;
  const std::int64_t together = exec_on_host ? heads : 1;  // query heads per iteration
  Kokkos::parallel_for(
      "kernels/attention_delta",
      Kokkos::RangePolicy<Exec>(exec, 0, shape.tokens() * heads / together),
      KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t t = item * together / heads;
        const std::int64_t first = item * together % heads;
        for (std::int64_t h = first; h < first + together; ++h) {
          const T* __restrict x = &grad(t, h * size);
          const T* __restrict y = &o(t, h * size);
          A sum = 0;
#pragma omp simd reduction(+ : sum)
          for (std::int64_t d = 0; d < size; ++d)
            sum += static_cast<A>(x[d]) * static_cast<A>(y[d]);
          delta((t / sequence * heads + h) * sequence + t % sequence) = sum;
        }
      });
}

namespace {

/// One team computes all gradients of a sample's head of keys and values, and of its query heads.
template <class T>
struct TeamOfHead {
  AttentionBackward<T> backward;
  KOKKOS_FUNCTION void operator()(const AttentionMember& team) const {
    backward.all(team, team.league_rank());
  }
};
template <class T>
struct TeamOfKeys {
  AttentionBackward<T> backward;
  KOKKOS_FUNCTION void operator()(const AttentionMember& team) const { backward.keys(team); }
};
template <class T>
struct TeamOfQueries {
  AttentionBackward<T> backward;
  KOKKOS_FUNCTION void operator()(const AttentionMember& team) const { backward.queries(team); }
};

template <class T, class Teams>
void launch(const Exec& exec, std::int64_t teams, const Teams& body) {
  if (teams == 0) return;
  const auto bytes = aligned_scratch_bytes<Accumulate<T>>(body.backward.scratch_elements());
  auto policy = AttentionPolicy(exec, static_cast<int>(teams), team_threads(exec))
                    .set_scratch_size(1, Kokkos::PerTeam(static_cast<int>(bytes)));
  Kokkos::parallel_for("kernels/attention_backward", policy, body);
}

/// The parts of attention_backward's workspace.
template <class T>
struct Workspace {
  using A = Accumulate<T>;
  View1<A> deltas, sums, dtable;

  Workspace(View1<A> all, const AttentionShape& s) {
    const std::int64_t count = s.tokens() * s.heads;
    const std::int64_t table = relative_bias_workspace(s.sizes(), s.buckets.count);
    deltas = part(all, 0, count);
    sums = part(all, count, is_narrow<T> ? count * s.head_size : 0);
    dtable = part(all, extent(all, 0) - table, table);
  }
};

/// Queries that see no key have no pairs, so their gradients begin at 0.
template <class T>
void clear_queries(const Handle& handle, View2<T> dq, View1<Accumulate<T>> sums,
                   std::int64_t columns) {
  if constexpr (is_narrow<T>) return fill<Accumulate<T>>(handle, sums, 0.0);
  for_rows(
      "kernels/attention_clear", handle, extent(dq, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        T* row = row_of(dq, t);
        for_lanes(team, columns, [&](std::int64_t c) { row[c] = T(0); });
      });
}

template <class T>
void portable_backward(const Handle& handle, View2<T> dq, View2<T> dkey_value, View2<const T> grad,
                       View2<const T> o, View2<const T> q, View2<const T> key_value,
                       View3<const Accumulate<T>> logsumexp, View1<Accumulate<T>> workspace,
                       const AttentionShape& s, const AttentionDropout& dropout,
                       View2<const T> table = {}, View2<Accumulate<T>> dtable = {}) {
  using A = Accumulate<T>;
  const Workspace<T> work(workspace, s);
  attention_delta<T>(handle, work.deltas, grad, o, s);
  AttentionBackward<T> backward{dq,
                                dkey_value,
                                grad,
                                q,
                                key_value,
                                logsumexp,
                                work.deltas,
                                s,
                                AttentionMasks(dropout, s),
                                HeadSizes<A>(s.head_size),
                                work.sums.data()};
  backward.native = handle.choice().attention(dtype_of<T>).backward == AttentionBackend::native;
  backward.table = table;
  backward.adds_queries = s.has_key_ranges();
  if (s.has_key_ranges()) clear_queries<T>(handle, dq, work.sums, s.heads * s.head_size);
  const bool sums_biases = s.has_biases() && dtable.data() != nullptr;
  const std::int64_t rows = s.batch * backward.query_blocks();
  const std::int64_t columns = s.buckets.count * s.heads;
  if (sums_biases) {
    backward.dtable = work.dtable.data();
    fill<A>(handle, part(work.dtable, 0, rows * columns), 0.0);
  }
  if constexpr (exec_on_host)
    attention_backward_by_heads<T>(handle, backward);
  else
    attention_backward_by_blocks<T>(handle, backward);
  if (sums_biases)
    linear_backward_bias<A>(handle, flat(dtable), matrix<const A>(work.dtable, rows, columns));
}

}  // namespace

template <class T>
void attention_backward_by_heads(const Exec& exec, const AttentionBackward<T>& backward) {
  launch<T>(exec, backward.heads(), TeamOfHead<T>{backward});
}

template <class T>
void attention_backward_by_blocks(const Exec& exec, const AttentionBackward<T>& backward) {
  launch<T>(exec, backward.key_teams(), TeamOfKeys<T>{backward});
  launch<T>(exec, backward.query_teams(), TeamOfQueries<T>{backward});
}

template <class T>
std::int64_t attention_workspace_elements(const KernelChoice& choice, const AttentionShape& shape) {
  const std::int64_t biases = relative_bias_workspace(shape.sizes(), shape.buckets.count);
  if constexpr (is_narrow<T>)
    return biases +
           narrow_attention_workspace(
               shape.sizes(), choice.attention(dtype_of<T>).backward == AttentionBackend::cudnn);
  return biases + shape.tokens() * shape.heads;
}

template <class T>
void attention_backward(const Handle& handle, View2<T> dqkv, View2<const T> grad, View2<const T> o,
                        View2<const T> qkv, View3<const Accumulate<T>> logsumexp,
                        View1<Accumulate<T>> workspace, const AttentionShape& shape,
                        const AttentionDropout& dropout, View2<const T> table,
                        View2<Accumulate<T>> dtable) {
  const AttentionShape s = resolved(shape);
  expect_own_keys(s);
  expect_shape(dqkv, "dqkv", {s.tokens(), s.qkv_columns()});
  expect_shape(grad, "grad", {s.tokens(), s.heads * s.head_size});
  expect_shape(o, "o", {s.tokens(), s.heads * s.head_size});
  expect_shape(qkv, "qkv", {s.tokens(), s.qkv_columns()});
  expect_shape(logsumexp, "logsumexp", {s.batch, s.heads, s.sequence});
  expect_shape(workspace, "workspace", {attention_workspace_elements<T>(handle.choice(), s)});
  if (s.has_biases()) expect_shape(table, "table", {s.buckets.count, s.heads});
  if (dtable.data() != nullptr) expect_shape(dtable, "dtable", {s.buckets.count, s.heads});
  if (s.tokens() * s.key_value_heads == 0) return;
  if constexpr (is_narrow<T>) {
    const AttentionBackend backend = handle.choice().attention(dtype_of<T>).backward;
    if (backend == AttentionBackend::cudnn &&
        attention_backward_cudnn<T>(handle, dqkv, grad, o, qkv, logsumexp, workspace, s, dropout))
      return;
    const auto arrays = {static_cast<const void*>(dqkv.data()),
                         static_cast<const void*>(grad.data()), static_cast<const void*>(o.data()),
                         static_cast<const void*>(qkv.data()),
                         static_cast<const void*>(workspace.data())};
    const auto strides = {row_stride(dqkv), row_stride(grad), row_stride(o), row_stride(qkv)};
    if (backend != AttentionBackend::portable && group_kernels_available() &&
        group_backward_takes(s, arrays, strides))
      return group_attention_backward<T>(handle, handle.stream(), dqkv, grad, o, qkv, logsumexp,
                                         workspace, s, dropout);
    if (backend != AttentionBackend::portable && flash_available() &&
        flash_takes(s, arrays, strides))
      return flash_attention_backward<T>(handle, dqkv, grad, o, qkv, logsumexp, workspace, s,
                                         dropout);
  }
  const std::int64_t queries = s.heads * s.head_size;
  portable_backward<T>(handle, dqkv, columns_from(dqkv, queries), grad, o, qkv,
                       columns_from(qkv, queries), logsumexp, workspace, s, dropout, table, dtable);
}

template <class T>
void attention_backward(const Handle& handle, View2<T> dq, View2<T> dkey_value, View2<const T> grad,
                        View2<const T> o, View2<const T> q, View2<const T> key_value,
                        View3<const Accumulate<T>> logsumexp, View1<Accumulate<T>> workspace,
                        const AttentionShape& shape, const AttentionDropout& dropout) {
  const AttentionShape s = resolved(shape);
  expect_other_keys(s);
  const std::int64_t queries = s.heads * s.head_size;
  const std::int64_t rows = s.batch * s.keys_per_sample();
  const std::int64_t columns = 2 * s.key_value_heads * s.head_size;
  expect_shape(dq, "dq", {s.tokens(), queries});
  expect_shape(dkey_value, "dkey_value", {rows, columns});
  expect_shape(grad, "grad", {s.tokens(), queries});
  expect_shape(o, "o", {s.tokens(), queries});
  expect_shape(q, "q", {s.tokens(), queries});
  expect_shape(key_value, "key_value", {rows, columns});
  expect_shape(logsumexp, "logsumexp", {s.batch, s.heads, s.sequence});
  expect_shape(workspace, "workspace", {attention_workspace_elements<T>(handle.choice(), s)});
  if (rows * s.key_value_heads == 0) return;
  portable_backward<T>(handle, dq, dkey_value, grad, o, q, key_value, logsumexp, workspace, s,
                       dropout);
}

#define TRIREME_INSTANTIATE(T)                                                             \
  template void attention_delta<T>(const Exec&, View1<Accumulate<T>>, View2<const T>,      \
                                   View2<const T>, const AttentionShape&);                 \
  template std::int64_t attention_workspace_elements<T>(const KernelChoice&,               \
                                                        const AttentionShape&);            \
  template void attention_backward_by_heads<T>(const Exec&, const AttentionBackward<T>&);  \
  template void attention_backward_by_blocks<T>(const Exec&, const AttentionBackward<T>&); \
  template void attention_backward<T>(                                                     \
      const Handle&, View2<T>, View2<const T>, View2<const T>, View2<const T>,             \
      View3<const Accumulate<T>>, View1<Accumulate<T>>, const AttentionShape&,             \
      const AttentionDropout&, View2<const T>, View2<Accumulate<T>>);                      \
  template void attention_backward<T>(const Handle&, View2<T>, View2<T>, View2<const T>,   \
                                      View2<const T>, View2<const T>, View2<const T>,      \
                                      View3<const Accumulate<T>>, View1<Accumulate<T>>,    \
                                      const AttentionShape&, const AttentionDropout&)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
