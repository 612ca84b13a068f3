#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/kernels/warpgroup_tiles.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/warpgroup_emulator.hpp"

/// Launches, failures and tiles for tests of the emulator of warpgroups.
namespace trireme::testing::warpgroup_cases {

using kernels::GroupRows;
using kernels::Major;
using kernels::TensorMap;
using kernels::TensorMapShape;
using Block = EmulatedGroupBlock;

inline EmulatorLaunch groups(int n) {
  EmulatorLaunch launch;
  launch.threads = 128 * n;
  launch.shared_bytes = 96 * 1024;
  return launch;
}

inline std::string failure(const EmulatorLaunch& launch, const WarpgroupEmulator::Body& body) {
  try {
    WarpgroupEmulator::run(launch, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline void expect_failure(const EmulatorLaunch& launch, const std::string& part,
                           const WarpgroupEmulator::Body& body) {
  const std::string found = failure(launch, body);
  EXPECT_NE(found.find(part), std::string::npos) << "expected: " << part << "\nfound: " << found;
}

/// All threads write number(row, column) into a tile.
template <int rows, int columns, class Number>
void fill(Block& block, GroupRows<rows, columns> tile, const Number& number) {
  for (int p = block.thread(); p < rows * columns / 2; p += 128) {
    const int row = p / (columns / 2), column = p % (columns / 2) * 2;
    block.store(tile.at(row, column / 8) + static_cast<std::uint32_t>(column % 8 * 2),
                block.pack<Bf16>(number(row, column), number(row, column + 1)));
  }
}

}  // namespace trireme::testing::warpgroup_cases
