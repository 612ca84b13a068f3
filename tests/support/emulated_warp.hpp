#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/narrow.hpp>

#include <algorithm>
#include <array>
#include <cstdint>

#include "support/emulated_memory.hpp"

/// Joint operations of the 32 lanes of a warp, with the layouts of the PTX ISA ("Matrix Fragments
/// for mma.m16n8k16", "ldmatrix", "shfl"). A lane has index 4 g + t.
namespace trireme::testing {

enum class WarpOperation : std::uint8_t {
  none,
  multiply_bf16,
  multiply_fp16,
  load_matrices,
  load_matrices_transposed,
  shuffle,
  broadcast,
  vote,
  store,
  store_matrices,
  store_matrices_transposed,
  commit_products,
  barrier
};

/// Number of operations of one warp, or of the warp with the most.
struct WarpCounts {
  std::int64_t products = 0;
  std::int64_t matrix_loads = 0;

  void add(WarpOperation operation) {
    if (operation == WarpOperation::multiply_bf16 || operation == WarpOperation::multiply_fp16)
      ++products;
    if (operation == WarpOperation::load_matrices ||
        operation == WarpOperation::load_matrices_transposed)
      ++matrix_loads;
  }
  void raise_to(const WarpCounts& other) {
    products = std::max(products, other.products);
    matrix_loads = std::max(matrix_loads, other.matrix_loads);
  }
};

/// One lane's part of an operation.
struct WarpRequest {
  WarpOperation operation = WarpOperation::none;
  float* sums = nullptr;                // multiply: [4]
  const std::uint32_t* left = nullptr;  // multiply: [4]
  std::uint32_t right[2] = {};          // multiply
  std::uint32_t* words = nullptr;  // load_…, store_matrices…: [4]; shuffle, vote, store: [1]
  std::uint32_t address = 0;       // load_…, store…
  int lanes = 0;                   // shuffle
};

using WarpRequests = std::array<WarpRequest, 32>;

template <class T>
float half_of(std::uint32_t word, int which) {
  return static_cast<float>(
      __builtin_bit_cast(T, static_cast<std::uint16_t>(which == 0 ? word : word >> 16)));
}

/// Products and their sum are exact to 53 bits and rounded once to fp32, at least as exact as a
/// tensor core.
template <class T>
void multiply(const WarpRequests& lanes) {
  double a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const WarpRequest& r = lanes[static_cast<std::size_t>(lane)];
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 2; ++j)
        a[g + i % 2 * 8][2 * t + j + i / 2 * 8] = double{half_of<T>(r.left[i], j)};
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) b[2 * t + j + 8 * i][g] = double{half_of<T>(r.right[i], j)};
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      float& c = lanes[static_cast<std::size_t>(lane)].sums[i];
      double sum = double{c};
      for (int k = 0; k < 16; ++k) sum += a[g + i / 2 * 8][k] * b[k][2 * t + i % 2];
      c = static_cast<float>(sum);
    }
  }
}

/// Loads four 8×8 matrices. Row r of matrix i is at the address of lane 8 i + r.
template <class Memory>
void load_matrices(const WarpRequests& lanes, Memory& memory, int first_thread, bool transposed,
                   std::int64_t& conflicts) {
  const auto address = [&](int lane) { return lanes[static_cast<std::size_t>(lane)].address; };
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t rows[8][8];
    for (int r = 0; r < 8; ++r) {
      const int lane = 8 * matrix + r;
      check(address(lane) % 16 == 0, "ldmatrix at address ", address(lane));
      memory.read(first_thread + lane, address(lane), rows[r], 16);
    }
    conflicts += row_conflicts(address, 8 * matrix);
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      const std::uint32_t low = transposed ? rows[2 * t][g] : rows[g][2 * t];
      const std::uint32_t high = transposed ? rows[2 * t + 1][g] : rows[g][2 * t + 1];
      lanes[static_cast<std::size_t>(lane)].words[matrix] = low | high << 16;
    }
  }
}

/// The inverse: stores four 8×8 matrices.
template <class Memory>
void store_matrices(const WarpRequests& lanes, Memory& memory, int first_thread, bool transposed,
                    std::int64_t& conflicts) {
  const auto address = [&](int lane) { return lanes[static_cast<std::size_t>(lane)].address; };
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t rows[8][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 2; ++i)
        (transposed ? rows[2 * t + i][g] : rows[g][2 * t + i]) = static_cast<std::uint16_t>(
            lanes[static_cast<std::size_t>(lane)].words[matrix] >> 16 * i);
    }
    conflicts += row_conflicts(address, 8 * matrix);
    for (int r = 0; r < 8; ++r) {
      const int lane = 8 * matrix + r;
      check(address(lane) % 16 == 0, "stmatrix at address ", address(lane));
      memory.write(first_thread + lane, address(lane), rows[r], 16);
    }
  }
}

/// Executes the operation that all lanes have requested.
template <class Memory>
void execute(const WarpRequests& lanes, Memory& memory, int first_thread, std::int64_t& conflicts) {
  const auto address = [&](int lane) { return lanes[static_cast<std::size_t>(lane)].address; };
  std::uint32_t before[32] = {};
  std::uint32_t any = 0;
  switch (lanes[0].operation) {
    case WarpOperation::none:
    case WarpOperation::commit_products:
    case WarpOperation::barrier:
      return;
    case WarpOperation::multiply_bf16:
      return multiply<Bf16>(lanes);
    case WarpOperation::multiply_fp16:
      return multiply<Fp16>(lanes);
    case WarpOperation::load_matrices:
      return load_matrices(lanes, memory, first_thread, false, conflicts);
    case WarpOperation::load_matrices_transposed:
      return load_matrices(lanes, memory, first_thread, true, conflicts);
    case WarpOperation::shuffle:
    case WarpOperation::vote:
      for (std::size_t i = 0; i < 32; ++i) any |= before[i] = *lanes[i].words;
      for (std::size_t i = 0; i < 32; ++i)
        *lanes[i].words = lanes[0].operation == WarpOperation::vote
                              ? any
                              : before[i ^ static_cast<std::size_t>(lanes[i].lanes)];
      return;
    case WarpOperation::broadcast:
      for (std::size_t i = 1; i < 32; ++i) *lanes[i].words = *lanes[0].words;
      return;
    case WarpOperation::store:
      conflicts += word_conflicts(address);
      for (int i = 0; i < 32; ++i)
        memory.write(first_thread + i, address(i), lanes[static_cast<std::size_t>(i)].words, 4);
      return;
    case WarpOperation::store_matrices:
      return store_matrices(lanes, memory, first_thread, false, conflicts);
    case WarpOperation::store_matrices_transposed:
      return store_matrices(lanes, memory, first_thread, true, conflicts);
  }
}

}  // namespace trireme::testing
