#pragma once

#include <trireme/base/types.hpp>

namespace trireme {

/// How rotary positions reach beyond the sequence that a model was trained with.
enum class RotaryScalingKind : std::uint8_t {
  none,
  linear,   ///< positions divided by a factor (Chen et al. 2023, arXiv 2306.15595)
  dynamic,  ///< another base of the wavelengths, from the length of samples ("NTK-aware")
  yarn,     ///< long wavelengths divided by a factor (Peng et al. 2023, arXiv 2309.00071)
  llama3    ///< the same with another ramp (Grattafiori et al. 2024, arXiv 2407.21783)
};
std::string_view name_of(RotaryScalingKind);
template <>
std::span<const std::string_view> names<RotaryScalingKind>();

}  // namespace trireme
