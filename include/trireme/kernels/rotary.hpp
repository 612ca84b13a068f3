#pragma once

#include <trireme/layout/token_places.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Rotary position embedding (Su et al. 2021, arXiv 2104.09864, eq. 34). Pairs are formed from a
/// head's two halves, as in Hugging Face's Llama: elements i and i + K/2 of a head are rotated by
/// the angle position · f with f = theta^(−2i/K), or only those of its last K columns. The angle is
/// computed in double precision. Asynchronous on exec; instantiated for float, double, Bf16 and
/// Fp16.
namespace trireme::kernels {

/// Longer wavelengths for longer sequences: f becomes f (1 − r + r / factor) with r = start +
/// per_pair · i + per_frequency · f, clamped to [0, 1].
struct RotaryScaling {
  double factor = 1;
  double start = 0;
  double per_pair = 0;
  double per_frequency = 0;
  double magnitude = 1;  ///< factor by which rotated pairs are multiplied
};

/// Rotation of the first heads of each row. The token of row t has the position positions[t].
/// Without `positions`, the token's position is places.position((first_row + t) mod sequence):
/// `sequence` is the number of tokens of a sample on this rank, and `first_row` the number of row 0
/// among this rank's tokens.
struct Rotary {
  std::int64_t heads = 0;      ///< number of heads to rotate: the first heads of a row
  std::int64_t head_size = 0;  ///< columns of a head
  double theta = 10000;
  std::int64_t sequence = 1;
  std::int64_t first_row = 0;
  layout::TokenPlaces places = {};
  RotaryScaling scaling = {};
  View1<const std::int32_t> positions = {};  // [T], or empty
  std::int64_t size = 0;     ///< K, even: the last columns of a head, which are rotated; 0: all
  bool interleaved = false;  ///< pairs are the elements 2i and 2i + 1 instead
};

/// (a, b) = (a cos − b sin, b cos + a sin) · magnitude for each pair of each head, in place. x [T,
/// N], N ≥ heads · head_size: queries and keys of qkv rows, followed by values.
template <class T>
void rotary_forward(const Exec& exec, View2<T> x, const Rotary& rotary);

/// Gradient of rotary_forward, in place: rotates the pairs of dx [T, N] by the negative angle and
/// multiplies them by the magnitude.
template <class T>
void rotary_backward(const Exec& exec, View2<T> dx, const Rotary& rotary);

}  // namespace trireme::kernels
