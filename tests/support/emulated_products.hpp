#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/kernels/warpgroup_tiles.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/emulated_warp.hpp"
#include "support/ordered_memory.hpp"

/// Matrix descriptors, products of warpgroups and copies of boxes, with the layouts of the PTX ISA
/// ("Asynchronous Warpgroup Level Matrix Multiply-Accumulate", "Tensor Data movement").
namespace trireme::testing::emulator {

/// 128-byte swizzling of a linear address.
inline std::uint32_t swizzled(std::uint32_t address) {
  return address ^ ((address >> 7 & 7U) << 4);
}

/// Properties of a product that must be equal in all threads of a warpgroup.
struct ProductKind {
  bool bf16 = true, left_in_registers = false, add = false;
  int columns = 0;
  kernels::Major left = kernels::Major::depth, right = kernels::Major::depth;
  std::uint64_t a = 0, b = 0;  // descriptors
  bool operator==(const ProductKind&) const = default;
};

/// One thread's part of a product.
struct Product {
  ProductKind kind;
  float* sums = nullptr;
  std::array<std::uint32_t, 4> left = {};
};

/// 8 values of two bytes each.
using Piece = std::array<std::uint16_t, 8>;

/// Reads 16 bytes at a swizzled address.
template <class Read>
Piece piece_at(const Read& read, std::uint32_t linear) {
  Piece piece;
  read(swizzled(linear), piece.data(), 16);
  return piece;
}

struct Descriptor {
  std::uint32_t start, leading, stride;
  explicit Descriptor(std::uint64_t word)
      : start(static_cast<std::uint32_t>(word & 0x3FFFU) << 4),
        leading(static_cast<std::uint32_t>(word >> 16 & 0x3FFFU) << 4),
        stride(static_cast<std::uint32_t>(word >> 32 & 0x3FFFU) << 4) {
    check(word >> 62 == 1, "a matrix descriptor without 128-byte swizzling");
    check((word & 0x3FFFC000C000C000U) == 0, "a matrix descriptor with reserved bits or an offset");
  }
};

/// numbers[k][i], k < 16: rows (of a left operand) or columns `first` … first + count − 1.
template <class Read>
void read_operand(const Read& read, std::uint64_t word, kernels::Major major, int first, int count,
                  std::vector<std::array<std::uint16_t, 16>>& numbers) {
  const Descriptor d(word);
  numbers.resize(static_cast<std::size_t>(count));
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  for (int i = 0; i < count; i += 8)
    for (int j = 0; j < 16; ++j) {
      const auto edge = static_cast<std::uint32_t>(first + i);
      const auto inner = static_cast<std::uint32_t>(j);
      if (major == kernels::Major::depth) {  // piece j / 8 of row i + j % 8
        const Piece piece =
            piece_at(read, d.start + edge / 8 * d.stride + inner % 8 * 128 + inner / 8 * 16);
        std::copy(piece.begin(), piece.end(), numbers[at(i + j % 8)].begin() + j / 8 * 8);
      } else {  // piece i / 8 of row j
        const Piece piece = piece_at(read, d.start + edge / 64 * d.leading + edge % 64 * 2 +
                                               inner % 8 * 128 + inner / 8 * d.stride);
        for (int e = 0; e < 8; ++e) numbers[at(i + e)][at(j)] = piece[at(e)];
      }
    }
}

template <class T>
double number_of(std::uint16_t bits) {
  return static_cast<double>(static_cast<float>(__builtin_bit_cast(T, bits)));
}

/// One warp's 16 rows of a product: sums(lane) is the lane's fragment, which becomes the new sums.
/// Products and their sum are exact to 53 bits and rounded once to fp32.
template <class T, class Read, class Sums>
void multiply_rows(const Read& read, const std::array<const Product*, 32>& lanes, int warp_of_group,
                   const Sums& sums) {
  const ProductKind& kind = lanes[0]->kind;
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  std::vector<std::array<std::uint16_t, 16>> left, right;
  if (kind.left_in_registers) {
    left.resize(16);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j)
          left[at(lane / 4 + i % 2 * 8)][at(2 * (lane % 4) + j + i / 2 * 8)] =
              static_cast<std::uint16_t>(lanes[at(lane)]->left[at(i)] >> 16 * j);
  } else {
    read_operand(read, kind.a, kind.left, 16 * warp_of_group, 16, left);
  }
  read_operand(read, kind.b, kind.right, 0, kind.columns, right);

  std::vector<double> b(at(16 * kind.columns)), row(at(kind.columns));
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < kind.columns; ++n)
      b[at(k * kind.columns + n)] = number_of<T>(right[at(n)][at(k)]);
  for (int i = 0; i < 16; ++i) {
    const auto sum = [&](int n) -> float& {
      return sums(i % 8 * 4 + n % 8 / 2)[n / 8 * 4 + i / 8 * 2 + n % 2];
    };
    for (int n = 0; n < kind.columns; ++n) row[at(n)] = kind.add ? double{sum(n)} : 0.0;
    for (int k = 0; k < 16; ++k) {
      const double a = number_of<T>(left[at(i)][at(k)]);
      const double* with = b.data() + k * kind.columns;
      for (int n = 0; n < kind.columns; ++n) row[at(n)] += a * with[n];
    }
    for (int n = 0; n < kind.columns; ++n) sum(n) = static_cast<float>(row[at(n)]);
  }
}

/// A pending copy of a box.
struct BoxCopy {
  kernels::TensorMapShape map;
  std::array<int, 4> first;
  std::uint32_t to, phases;

  std::uint32_t rows() const { return map.box[1] * map.box[2] * map.box[3]; }
  std::uint32_t bytes() const { return 128 * rows(); }

  /// Calls write(address, piece) for each 16 bytes.
  template <class Write>
  void land(const Write& write) const {
    for (std::uint32_t r = 0; r < rows(); ++r) {
      const std::int64_t x1 = first[1] + r % map.box[1];
      const std::int64_t x2 = first[2] + r / map.box[1] % map.box[2];
      const std::int64_t x3 = first[3] + r / map.box[1] / map.box[2];
      for (std::uint32_t p = 0; p < 8; ++p) {
        Piece piece{};
        for (std::uint32_t e = 0; e < 8; ++e) {
          const std::int64_t x0 = first[0] + 8 * p + e;
          const auto inside = [&](int axis, std::int64_t x) {
            return x >= 0 && x < map.sizes[axis];
          };
          if (inside(0, x0) && inside(1, x1) && inside(2, x2) && inside(3, x3))
            std::memcpy(&piece[e],
                        static_cast<const char*>(map.base) + 2 * x0 + x1 * map.strides[0] +
                            x2 * map.strides[1] + x3 * map.strides[2],
                        2);
        }
        write(swizzled(to + 128 * r + 16 * p), piece);
      }
    }
  }
};

inline void check_map(const kernels::TensorMapShape& map) {
  bool good = reinterpret_cast<std::uintptr_t>(map.base) % 16 == 0 && map.box[0] == 64;
  for (int i = 0; i < 3; ++i) good = good && map.strides[i] % 16 == 0 && map.strides[i] > 0;
  for (int i = 0; i < 4; ++i)
    good = good && map.sizes[i] > 0 && map.box[i] > 0 && map.box[i] <= 256;
  check(good, "a tensor map whose base or strides are no multiples of 16 bytes, or of another box");
}

}  // namespace trireme::testing::emulator

namespace trireme::testing {

/// A tensor map for the emulator.
inline kernels::TensorMap emulated_tensor_map(const kernels::TensorMapShape& shape) {
  static_assert(sizeof shape <= sizeof(kernels::TensorMap));
  emulator::check_map(shape);
  kernels::TensorMap map{};
  std::memcpy(map.bytes, &shape, sizeof shape);
  return map;
}

}  // namespace trireme::testing
