#pragma once

#include <trireme/base/check.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/kernels/kernel_choice.hpp>
#include <trireme/model/parameters.hpp>

namespace trireme::train {

/// Calls make(P()) with the types P of `[precision] compute`. Error for other types.
template <class Make>
auto with_precision(DType compute, const Make& make) {
  switch (compute) {
    case DType::fp64:
      return make(model::Fp64());
    case DType::fp32:
      return make(model::Fp32());
    case DType::bf16:
      return make(model::MixedBf16());
    case DType::fp16:
      return make(model::MixedFp16());
    case DType::int64:
    case DType::int32:
    case DType::uint32:
    case DType::uint16:
    case DType::uint8:
      break;
  }
  throw Error(
      text("[precision] compute = ", name_of(compute), ", expected fp64, fp32, bf16 or fp16"));
}

/// The back ends that a deck requests. Error if one is unavailable in this build.
kernels::KernelChoice kernel_choice(const deck::PrecisionConfig& precision);

}  // namespace trireme::train
