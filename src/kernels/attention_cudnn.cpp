#include <trireme/kernels/attention_cudnn.hpp>
#include <trireme/kernels/cudnn_attention.hpp>
#include <trireme/kernels/flash_attention.hpp>

namespace trireme::kernels {
namespace {

/// Whether cuDNN is tried for a call whose arrays are aligned. Calls with a window or with
/// documents are left to the tensor-core kernels, which skip blocks of keys that no query sees.
bool takes(const AttentionShape& s, const AttentionDropout& dropout) {
  return dropout.rate == 0.0 && s.window == 0 && s.cap == 0 && !s.has_documents() &&
         !s.has_biases() && !s.has_key_ranges() && s.heads_before == 0 &&
         s.heads == s.group * s.key_value_heads && s.head_size % 8 == 0 && s.tokens() * s.heads > 0;
}

template <class T>
CudnnAttentionCall call_of(const AttentionShape& s, View2<const T> qkv, View2<const T> o) {
  CudnnAttentionCall c;
  c.type = dtype_of<T>;
  c.causal = s.causal;
  c.scale = static_cast<float>(s.scale);
  c.batch = s.batch;
  c.sequence = s.sequence;
  c.heads = s.heads;
  c.key_value_heads = s.key_value_heads;
  c.head_size = s.head_size;
  c.qkv_stride = row_stride(qkv);
  c.o_stride = row_stride(o);
  return c;
}

}  // namespace

template <class T>
bool attention_forward_cudnn(const Handle& handle, View2<T> o, View3<float> logsumexp,
                             View2<const T> qkv, const AttentionShape& s,
                             const AttentionDropout& dropout) {
  if (!takes(s, dropout) ||
      !rows_of_16_bytes({o.data(), logsumexp.data(), qkv.data()}, {row_stride(o), row_stride(qkv)}))
    return false;
  const CudnnAttentionCall call = call_of<T>(s, qkv, o);
  CudnnAttentionArrays arrays;
  arrays.o = o.data();
  arrays.logsumexp = logsumexp.data();
  arrays.qkv = qkv.data();
  const View1<std::byte> workspace = handle.library_workspace();
  return handle.cudnn().run(call, arrays, workspace.data(), static_cast<Bytes>(workspace.extent(0)),
                            handle.stream());
}

template <class T>
bool attention_backward_cudnn(const Handle& handle, View2<T> dqkv, View2<const T> grad,
                              View2<const T> o, View2<const T> qkv, View3<const float> logsumexp,
                              View1<float> workspace, const AttentionShape& s,
                              const AttentionDropout& dropout) {
  if (!takes(s, dropout) ||
      !rows_of_16_bytes(
          {dqkv.data(), grad.data(), o.data(), qkv.data(), logsumexp.data(), workspace.data()},
          {row_stride(dqkv), row_stride(grad), row_stride(o), row_stride(qkv)}))
    return false;
  CudnnAttentionCall call = call_of<T>(s, qkv, o);
  call.backward = true;
  call.grad_stride = row_stride(grad);
  call.dqkv_stride = row_stride(dqkv);
  CudnnAttentionArrays arrays;
  arrays.o = const_cast<T*>(o.data());
  arrays.logsumexp = const_cast<float*>(logsumexp.data());
  arrays.qkv = qkv.data();
  arrays.grad = grad.data();
  arrays.dqkv = dqkv.data();
  return handle.cudnn().run(call, arrays, workspace.data(),
                            static_cast<Bytes>(workspace.extent(0)) * 4, handle.stream());
}

#define TRIREME_INSTANTIATE(T)                                                                     \
  template bool attention_forward_cudnn<T>(const Handle&, View2<T>, View3<float>, View2<const T>,  \
                                           const AttentionShape&, const AttentionDropout&);        \
  template bool attention_backward_cudnn<T>(                                                       \
      const Handle&, View2<T>, View2<const T>, View2<const T>, View2<const T>, View3<const float>, \
      View1<float>, const AttentionShape&, const AttentionDropout&)
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
