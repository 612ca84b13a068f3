#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

/// Types that several folders share, and the enums whose words decks, logs and files use.
namespace trireme {
using Rank = int;   ///< Position in a communicator.
using Stage = int;  ///< Pipeline stage (virtual stages numbered through).
using Micro = int;  ///< Micro-batch of a step, 0 … m−1 on each data-parallel rank.
using Bytes = std::int64_t;
using Seconds = double;

/// Number of elements of an array whose squares are summed at a time: the blocks of the gradient's
/// norm, between which the distributed optimizer may cut an array.
inline constexpr std::int64_t norm_block = 4096;

/// How a number is stored. The order is part of the checkpoint format: append only.
enum class DType : std::uint8_t { fp64, fp32, bf16, fp16, int64, int32, uint32, uint16, uint8 };

/// A published architecture: a name for one choice of the properties below (deck/families.hpp).
enum class Family : std::uint8_t { gpt, llama, bert, qwen2, qwen3, mistral, gemma, gemma2, gemma3 };
/// LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019).
enum class NormKind : std::uint8_t { layer, rms };
/// Norms before attention and feed-forward, after each residual addition, or before attention and
/// feed-forward and after them (Ding et al. 2021, arXiv 2105.13290).
enum class NormPlacement : std::uint8_t { pre, post, sandwich };
enum class Positions : std::uint8_t { learned, rotary };
/// Non-linearity of the feed-forward: GELU, or a product with the SiLU or the GELU of a gate.
enum class Activation : std::uint8_t { gelu, swiglu, geglu };
/// Which matrix products of a layer have a bias.
enum class Biases : std::uint8_t { none, query_key_value, all };
/// Tokens of the sample that a token attends to: those up to itself, or all.
enum class Mask : std::uint8_t { causal, full };
/// Training objective: the next token, or masked tokens.
enum class Objective : std::uint8_t { next_token, masked_token };
/// Content of a sample: a window of the token stream, or whole documents that do not see one
/// another.
enum class Packing : std::uint8_t { none, documents };
/// h Φ(h) with the normal distribution function Φ, or its approximation by a hyperbolic tangent.
enum class Gelu : std::uint8_t { tanh, exact };
/// Second loss of bert: whether a segment follows the other one in its text, whether the segments
/// are in order, or none.
enum class SentenceLoss : std::uint8_t { next, order, none };
enum class ScheduleKind : std::uint8_t {
  gpipe,
  one_forward_one_backward,
  interleaved,
  zb_h1,
  zb_v,
  v_half,
  v_min,
  two_bw,
  automatic,
  file
};
/// Schedules of two chunks whose stages form a V.
constexpr bool is_v_schedule(ScheduleKind kind) {
  return kind == ScheduleKind::zb_v || kind == ScheduleKind::v_half || kind == ScheduleKind::v_min;
}
/// Pipeline rank of each stage (layout/stage_map.hpp).
enum class StagePlacement : std::uint8_t { automatic, round_robin, v };
/// Ranks that hold the token table and the output table: those of the first and the last stage, or
/// all pipeline ranks in parts.
enum class VocabularyPlacement : std::uint8_t { stage, pipeline };
/// Origin of the layout: the deck, or a choice for the number of ranks.
enum class LayoutMode : std::uint8_t { given, automatic };
/// Tensors that the backward pass recomputes instead of storing them.
enum class Recompute : std::uint8_t { none, selective, full, automatic };
/// Data that a device stores in host memory.
enum class Offload : std::uint8_t { none, optimizer, activations, both };
/// State that replicas divide among themselves, each value with that of the ones before it: the
/// stages of ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054).
enum class Sharding : std::uint8_t { none, optimizer, gradients, weights };
/// Transport of messages between ranks: "auto" is NCCL if this installation has it and every rank
/// has a device of its own, otherwise MPI.
enum class TransportKind : std::uint8_t { automatic, mpi, nccl };
/// Back end of attention: "auto" is the fastest one in this installation that sums in a fixed
/// order.
enum class AttentionKind : std::uint8_t { automatic, portable, tensor_cores, cudnn };
/// Number of layers that use a device's memory in turn if saved activations are offloaded: one is
/// computed while copies of one on each side are in flight.
inline constexpr int offload_windows = 3;
enum class OptimizerKind : std::uint8_t { adamw, sgd, lamb, lars, muon };
/// Factor of Muon's updates, by a matrix's shape: 0.2 √max(rows, columns), with which the root mean
/// square of an update is that of AdamW (Liu et al. 2025, arXiv 2502.16982), or
/// √max(1, rows / columns) (Jordan et al. 2024).
enum class MuonScale : std::uint8_t { match_adamw, spectral };
/// Course of the learning rate after the warm-up.
enum class LearningRateSchedule : std::uint8_t {
  cosine,
  linear,
  constant,
  inverse_square_root,
  warmup_stable_decay
};
/// How the learning rate follows the size of the batch.
enum class RateScaling : std::uint8_t { none, linear, square_root };
/// Rule by which local training changes the weights that its workers share.
enum class OuterOptimizer : std::uint8_t { sgd, nesterov };
/// Type of the weights' differences that workers send: that of the updated weights, or bf16.
enum class Differences : std::uint8_t { full, bf16 };
/// Shape of the decay at the end of `warmup_stable_decay`.
enum class CooldownShape : std::uint8_t { linear, cosine, exponential, minus_square_root };
/// An axis of the process grid (layout/axes.hpp).
enum class Axis : std::uint8_t { data, pipeline, tensor, context };
inline constexpr std::size_t axis_count = 4;

Bytes size_of(DType type);

/// The word in decks, logs and files: "fp32", "gpt", "1f1b", "adamw", "data".
std::string_view name_of(DType);
std::string_view name_of(Family);
std::string_view name_of(NormKind);
std::string_view name_of(NormPlacement);
std::string_view name_of(Positions);
std::string_view name_of(Activation);
std::string_view name_of(Biases);
std::string_view name_of(Mask);
std::string_view name_of(Objective);
std::string_view name_of(Packing);
std::string_view name_of(Gelu);
std::string_view name_of(SentenceLoss);
std::string_view name_of(ScheduleKind);
std::string_view name_of(StagePlacement);
std::string_view name_of(VocabularyPlacement);
std::string_view name_of(LayoutMode);
std::string_view name_of(Recompute);
std::string_view name_of(Offload);
std::string_view name_of(Sharding);
std::string_view name_of(TransportKind);
std::string_view name_of(AttentionKind);
std::string_view name_of(OptimizerKind);
std::string_view name_of(MuonScale);
std::string_view name_of(LearningRateSchedule);
std::string_view name_of(RateScaling);
std::string_view name_of(OuterOptimizer);
std::string_view name_of(Differences);
std::string_view name_of(CooldownShape);
std::string_view name_of(Axis);

/// All words of an enum, in the order of its values; `parse<E>(name)` is the inverse of name_of.
template <class E>
std::span<const std::string_view> names();

template <class E>
std::optional<E> parse(std::string_view name) {
  const auto all = names<E>();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] == name) return static_cast<E>(i);
  return std::nullopt;
}

/// The DType of a C++ type: `dtype_of<float> == DType::fp32`.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for this type");
  return DType::fp64;
}();
template <>
inline constexpr DType dtype_of<double> = DType::fp64;
template <>
inline constexpr DType dtype_of<float> = DType::fp32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<std::uint32_t> = DType::uint32;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::uint16;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;

}  // namespace trireme
