#include <trireme/train/kernel_choice.hpp>

namespace trireme::train {

kernels::KernelChoice kernel_choice(const deck::PrecisionConfig& precision) {
  const DType type = precision.compute;
  kernels::KernelChoice choice;
  choice.tf32 = precision.tf32;
  return choice.set_attention(type, kernels::attention_backends_of(type, precision.attention));
}

}  // namespace trireme::train
