// Launches of attention's backward pass on tensor cores: a first kernel computes delta and sets the
// counters to zero, and a second kernel computes the gradients.
#include <trireme/base/check.hpp>
#include <trireme/kernels/block_launch.hpp>
#include <trireme/kernels/flash_arguments.hpp>

namespace trireme::kernels {

template <class T>
void flash_attention_backward(const Exec& exec, View2<T> dqkv, View2<const T> grad,
                              View2<const T> o, View2<const T> qkv, View3<const float> logsumexp,
                              View1<float> workspace, const AttentionShape& shape,
                              const AttentionDropout& dropout) {
  const ExecGrid grid{exec};
  const FlashGradientArguments<T> a(dqkv, grad, o, qkv, logsumexp, workspace, shape, dropout,
                                    grid.processors(), flash_backward_keys(shape.head_size));
  const bool found =
      with_flash_kernel(shape.head_size, [&]<int size>(std::integral_constant<int, size>) {
        flash_backward<T, size>(grid, a.delta, a.gradients, dropout.rate > 0.0);
      });
  check(found, "no attention kernel for head size ", shape.head_size);
}

template <class T>
void group_attention_backward(const Exec& exec, void* stream, View2<T> dqkv, View2<const T> grad,
                              View2<const T> o, View2<const T> qkv, View3<const float> logsumexp,
                              View1<float> workspace, const AttentionShape& shape,
                              const AttentionDropout& dropout) {
  const auto head_size = static_cast<int>(shape.head_size);
  const GroupGradientArguments<T> a(dqkv, grad, o, qkv, logsumexp, workspace, shape, dropout,
                                    processors(exec));
  with_label(exec, "kernels/attention_delta",
             [&] { launch_group_delta<T>(stream, a.delta, head_size); });
  with_label(exec, "kernels/attention_backward",
             [&] { launch_group_backward<T>(stream, a.gradients, head_size, dropout.rate > 0.0); });
}

#define TRIREME_INSTANTIATE(T)                                                                     \
  template void group_attention_backward<T>(                                                       \
      const Exec&, void*, View2<T>, View2<const T>, View2<const T>, View2<const T>,                \
      View3<const float>, View1<float>, const AttentionShape&, const AttentionDropout&);           \
  template void flash_attention_backward<T>(const Exec&, View2<T>, View2<const T>, View2<const T>, \
                                            View2<const T>, View3<const float>, View1<float>,      \
                                            const AttentionShape&, const AttentionDropout&)
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
