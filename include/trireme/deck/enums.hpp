#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <span>
#include <string_view>

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

/// Reaction to wrong numbers that an audit finds (docs/reliability.md).
enum class AuditAction : std::uint8_t {
  stop,
  repair  ///< continue from the right numbers, where they can be told
};
std::string_view name_of(AuditAction);
template <>
std::span<const std::string_view> names<AuditAction>();

/// How replicas share their updates: all of them sum the gradients, or servers hold the weights
/// (Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server").
enum class DataStrategy : std::uint8_t { all_reduce, server };
/// Gradients of one update of the servers: those of all workers of a step, or those that one worker
/// pushes.
enum class ServerUpdates : std::uint8_t { step, push };

std::string_view name_of(DataStrategy);
std::string_view name_of(ServerUpdates);

template <>
std::span<const std::string_view> names<DataStrategy>();
template <>
std::span<const std::string_view> names<ServerUpdates>();

}  // namespace trireme
