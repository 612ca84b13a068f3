#include <trireme/model/fp8_scaling.hpp>

#include <trireme/architecture/fp8.hpp>
#include <trireme/kernels/elementwise.hpp>

#include <algorithm>

namespace trireme::model {

Fp8Scaling::Fp8Scaling(std::int64_t tensors, const deck::PrecisionConfig& precision,
                       int gradient_exponent)
    : algorithm_(precision.fp8_algorithm),
      gradient_exponent_(gradient_exponent),
      memory_("fp8 scaling", architecture::fp8_scaling_bytes(tensors, precision.fp8_history)),
      history_(memory_.take<float>(precision.fp8_history, tensors)),
      maxima_(memory_.take<float>(tensors)),
      scales_(memory_.take<float>(tensors)),
      inverses_(memory_.take<float>(tensors, architecture::fp8_inverse_stride)) {}

kernels::Fp8Scale Fp8Scaling::scale(std::int64_t tensor, bool notes) const {
  return {scales_.data() + tensor, inverses_.data() + tensor * architecture::fp8_inverse_stride,
          notes ? maxima_.data() + tensor : nullptr};
}

void Fp8Scaling::finish_step(const Exec& exec, std::int64_t step) const {
  kernels::record_fp8_maxima(exec, history_, (step - 1) % extent(history_, 0), maxima_);
  resume(exec, step);
}

void Fp8Scaling::resume(const Exec& exec, std::int64_t step) const {
  const std::int64_t newest = (std::max<std::int64_t>(step, 1) - 1) % extent(history_, 0);
  kernels::find_fp8_scales(exec, scales_, inverses_, history_,
                           {algorithm_, newest, gradient_exponent_});
}

void Fp8Scaling::reset(const Exec& exec) const {
  kernels::fill(exec, flat(history_), 0.0F);
  kernels::fill(exec, maxima_, 0.0F);
  resume(exec, 0);
}

NamedTensor<float> Fp8Scaling::history() const {
  const std::vector<std::int64_t> shape{extent(history_, 0), extent(history_, 1)};
  return {std::string(architecture::fp8_maxima_name), shape, {0, 0}, shape, flat(history_)};
}

}  // namespace trireme::model
