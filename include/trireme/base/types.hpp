#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

/// Types and enums that several folders share. Other enums: deck/enums.hpp.
namespace trireme {
using Rank = int;   ///< Position in a communicator.
using Stage = int;  ///< Pipeline stage (virtual stages are numbered consecutively).
using Micro = int;  ///< Micro-batch of a step, 0 … m−1 on each data-parallel rank.
using Bytes = std::int64_t;
using Seconds = double;

/// Number of consecutive elements of an array whose squares are summed together for the norm of the
/// gradient. The distributed optimizer may cut an array only between such blocks.
inline constexpr std::int64_t norm_block = 4096;

/// Storage type of a number. Checkpoints contain the type's word, such as "fp32".
enum class DType : std::uint8_t { fp64, fp32, bf16, fp16, int64, int32, uint32, uint16, uint8 };

enum class Positions : std::uint8_t { learned, rotary, relative };
/// GELU: h Φ(h) with the normal distribution function Φ, or its approximation by tanh, or by the
/// logistic function, h σ(1.702 h) (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2).
enum class Gelu : std::uint8_t { tanh, exact, quick };
/// Placement of stages on pipeline ranks (layout/stage_map.hpp).
enum class StagePlacement : std::uint8_t { automatic, round_robin, v };
/// Back end of attention. `automatic`: the fastest back end of this installation that sums in a
/// fixed order.
enum class AttentionKind : std::uint8_t { automatic, portable, tensor_cores, cudnn };
/// Number of windows of device memory that the layers use in turn if saved activations are
/// offloaded: one layer is computed while copies of its neighbours are in flight.
inline constexpr int offload_windows = 3;
/// An axis of the process grid (layout/axes.hpp).
enum class Axis : std::uint8_t { data, pipeline, tensor, context };
inline constexpr std::size_t axis_count = 4;

Bytes size_of(DType type);

/// The words of an enum in decks, logs and files, in the order of its values.
using EnumWords = std::span<const std::string_view>;
EnumWords enum_words(DType);
EnumWords enum_words(Positions);
EnumWords enum_words(Gelu);
EnumWords enum_words(StagePlacement);
EnumWords enum_words(AttentionKind);
EnumWords enum_words(Axis);

/// The words of all values of E.
template <class E>
EnumWords names() {
  return enum_words(E{});
}

/// The word of a value: "fp32", "gpt", "1f1b", "data".
template <class E>
requires std::is_enum_v<E> std::string_view name_of(E value) {
  return names<E>()[static_cast<std::size_t>(value)];
}

template <auto value>
consteval bool is_enumerator() {  // compilers print other values as casts: "(Axis)4"
  const std::string_view function = __PRETTY_FUNCTION__;
  const char first = function[function.find_last_of("):= ") + 1];
  return first < '0' || first > '9';
}

/// The words of E, for its enum_words(). Does not compile unless each enumerator has a word.
template <class E, class... Words>
consteval std::array<std::string_view, sizeof...(Words)> words_of(Words... words) {
  constexpr std::size_t count = sizeof...(Words);
  static_assert(
      is_enumerator<static_cast<E>(count - 1)>() && !is_enumerator<static_cast<E>(count)>(),
      "every enumerator has one word");
  return {words...};
}

/// Inverse of name_of; std::nullopt if `name` is no word of the enum.
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
