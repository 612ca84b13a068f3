#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/kernels/kernel_choice.hpp>

namespace trireme::train {

/// The back ends that a deck requests. Error if one is unavailable in this build.
kernels::KernelChoice kernel_choice(const deck::PrecisionConfig& precision);

}  // namespace trireme::train
