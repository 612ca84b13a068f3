#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/train/kernel_choices.hpp>

namespace trireme::train {

void choose_kernels(const deck::PrecisionConfig& precision) {
  const DType type = precision.compute;
  kernels::set_matmul_tf32(precision.tf32);
  kernels::set_attention_backends(type, kernels::attention_backends_of(type, precision.attention));
}

}  // namespace trireme::train
