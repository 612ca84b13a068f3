#pragma once

#include <trireme/deck/config.hpp>

namespace trireme::train {

/// Sets what a deck leaves to choice among kernels of equal meaning, for this process: tf32 and
/// attention's back ends. Before memory is planned, since back ends differ in their workspace.
void choose_kernels(const deck::PrecisionConfig& precision);

}  // namespace trireme::train
