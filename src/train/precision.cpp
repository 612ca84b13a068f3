#include <trireme/train/precision.hpp>

namespace trireme::train {

kernels::KernelChoice kernel_choice(const deck::PrecisionConfig& precision) {
  const DType type = precision.compute;
  kernels::KernelChoice choice;
  choice.tf32 = precision.tf32;
  if (precision.products == Products::fp32 && size_of(type) == 2)
    choice.set_products(type, kernels::MatmulBackend::widened);
  return choice.set_attention(type, kernels::attention_backends_of(type, precision.attention));
}

}  // namespace trireme::train
