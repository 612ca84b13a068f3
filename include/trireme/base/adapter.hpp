#pragma once

#include <trireme/base/types.hpp>

namespace trireme {

/// Trained additions to the weights of products.
enum class AdapterKind : std::uint8_t {
  none,
  lora,  ///< low-rank updates (Hu et al. 2021, arXiv 2106.09685)
  dora   ///< the same with a trained norm of each output's weights (Liu et al. 2024, arXiv
         ///< 2402.09353)
};
std::string_view name_of(AdapterKind);
template <>
std::span<const std::string_view> names<AdapterKind>();

/// The factor of a low-rank update.
enum class AdapterScaling : std::uint8_t {
  standard,  ///< alpha / rank
  rslora     ///< alpha / √rank (Kalajdzievski 2023, arXiv 2312.03732)
};
std::string_view name_of(AdapterScaling);
template <>
std::span<const std::string_view> names<AdapterScaling>();

}  // namespace trireme
