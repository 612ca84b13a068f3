#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <optional>

namespace trireme::hugging_face {

/// Writes `count` values of type `from` as type `to`: the same bits if the types are equal,
/// otherwise rounded once, to nearest, ties to even. Different types must be fp64, fp32, bf16 or
/// fp16, otherwise Error. Returns the position of the first finite value that is too large for `to`
/// (it becomes infinite), or std::nullopt. `in` and `out` must not overlap and need no alignment.
std::optional<std::int64_t> convert(DType from, const void* in, DType to, void* out,
                                    std::int64_t count);

/// Number of infinities and NaNs in an array, and the position of the first of these values.
struct Nonfinite {
  std::int64_t count = 0;
  std::int64_t first = 0;
};
Nonfinite nonfinite(DType type, const void* data, std::int64_t count);

/// The value at position `at` of an array of type fp64, fp32, bf16 or fp16.
double number_at(DType type, const void* data, std::int64_t at);

}  // namespace trireme::hugging_face
