#include <support/source_folder.hpp>
#include <trireme/base/text.hpp>

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "kernels/flash_cases.hpp"

// The tables of docs/attention.md: sizes are those of the kernels, and instructions of a step those
// that the emulator counts. tests/style/check_kernels.py compares the same rows with the compiler's
// output.

namespace trireme::kernels {
namespace {

using Row = std::map<std::string, std::string>;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t at = 1, end = 0; (end = line.find('|', at)) != std::string::npos; at = end + 1) {
    const std::string cell = line.substr(at, end - at);
    const std::size_t first = cell.find_first_not_of(' ');
    cells.push_back(first == std::string::npos
                        ? std::string()
                        : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
  }
  return cells;
}

/// The row of head size K in the table whose first heading is "K of `kernel`".
Row row_of(const std::string& kernel, int head_size) {
  std::ifstream page(trireme::testing::source_folder() + "/docs/attention.md");
  std::vector<std::string> names;
  for (std::string line; std::getline(page, line);) {
    const auto cells = cells_of(line);
    if (cells.empty()) {
      names.clear();
    } else if (cells[0] == "K of `" + kernel + "`") {
      names = cells;
    } else if (!names.empty() && cells[0] == std::to_string(head_size)) {
      Row row;
      for (std::size_t i = 0; i < names.size() && i < cells.size(); ++i) row[names[i]] = cells[i];
      return row;
    }
  }
  ADD_FAILURE() << "docs/attention.md has no row for head size " << head_size << " of " << kernel;
  return {};
}

template <class Tile>
void expect_sizes(Row row) {
  EXPECT_EQ(row["queries × keys"], text(Tile::queries, " × ", Tile::keys));
  EXPECT_EQ(row["threads, blocks per SM"], text(Tile::threads, ", ", Tile::blocks_per_processor));
  const std::uint32_t halves = Tile::shared_bytes / 512;
  EXPECT_EQ(Tile::shared_bytes % 512, 0U);
  EXPECT_EQ(row["shared memory"], text(halves / 2, halves % 2 != 0 ? ".5" : "", " KiB"));
}

template <class C>
class FlashPage : public ::testing::Test {};
using HeadSizes = ::testing::Types<flash_cases::Case<Bf16, 32>, flash_cases::Case<Bf16, 64>,
                                   flash_cases::Case<Bf16, 80>, flash_cases::Case<Bf16, 96>,
                                   flash_cases::Case<Bf16, 112>, flash_cases::Case<Bf16, 128>,
                                   flash_cases::Case<Bf16, 160>>;
TYPED_TEST_SUITE(FlashPage, HeadSizes);

/// One block of queries and one of keys: every warp of the forward kernel makes one step, and every
/// warp of the backward kernel one per block of queries. For some head sizes, some warps have less
/// to do; the compiled code is that of the others.
TYPED_TEST(FlashPage, HasTheSizesAndTheInstructionsOfTheKernels) {
  constexpr int K = TypeParam::head_size;
  using Forward = FlashForwardTile<K>;
  using Backward = FlashBackwardTile<K>;
  static_assert(has_flash_kernel(K));
  Row forward = row_of("FlashForward", K);
  Row backward = row_of("FlashBackward", K);
  expect_sizes<Forward>(forward);
  expect_sizes<Backward>(backward);

  const AttentionShape step{1, Forward::keys, 1, 1, K, false};
  flash_cases::EmulatedAttention<Bf16, K> one(testing::uniform<Bf16>(step.tokens() * 3 * K, 1),
                                              step, {});
  one.forward();
  EXPECT_EQ(forward["HMMA"], text(one.grid.report.most.products));
  EXPECT_EQ(forward["LDSM"], text(one.grid.report.most.matrix_loads));

  const AttentionShape block{1, Backward::keys, 1, 1, K, false};
  flash_cases::EmulatedAttention<Bf16, K> all(testing::uniform<Bf16>(block.tokens() * 3 * K, 1),
                                              block, {});
  all.forward();
  all.backward(testing::uniform<Bf16>(block.tokens() * K, 2));
  constexpr int steps = Backward::keys / Backward::queries;
  EXPECT_EQ(backward["HMMA"], text(all.grid.report.most.products / steps));
  EXPECT_EQ(backward["LDSM"], text(all.grid.report.most.matrix_loads / steps));
}

/// No head size without its row, and no kernel that the list above leaves out.
TEST(FlashPageRows, AreAllHeadSizes) {
  std::vector<int> sizes;
  for (int size = 1; size <= 256; ++size)
    if (has_flash_kernel(size)) sizes.push_back(size);
  EXPECT_EQ(sizes, (std::vector<int>{32, 64, 80, 96, 112, 128, 160}));
}

}  // namespace
}  // namespace trireme::kernels
