#include <support/source_folder.hpp>
#include <trireme/base/text.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#if !defined(__CUDACC__) && !defined(__HIPCC__)  // kernels for hosts alone
#include "kernels/flash_cases.hpp"
#include "support/emulated_group_attention.hpp"

// The tables of docs/notes/attention_kernels.md: sizes are those of the kernels, and instructions
// of a step those that the emulator counts. tests/style/check_kernels.py compares the same rows
// with the compiler's output.

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

/// The row of head size K, or of "K, dropout", in the table whose first heading is "K of `kernel`".
Row page_row(const std::string& kernel, const std::string& head_size) {
  std::ifstream page(trireme::testing::source_folder() + "/docs/notes/attention_kernels.md");
  std::vector<std::string> names;
  for (std::string line; std::getline(page, line);) {
    const auto cells = cells_of(line);
    if (cells.empty()) {
      names.clear();
    } else if (cells[0] == "K of `" + kernel + "`") {
      names = cells;
    } else if (!names.empty() && cells[0] == head_size) {
      Row row;
      for (std::size_t i = 0; i < names.size() && i < cells.size(); ++i) row[names[i]] = cells[i];
      return row;
    }
  }
  ADD_FAILURE() << "docs/notes/attention_kernels.md has no row for head size " << head_size
                << " of " << kernel;
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
TYPED_TEST_SUITE(FlashPage, flash_cases::Cases);

/// One block of queries and one of keys: every warp of the forward kernel makes one step, and every
/// warp of the backward kernel one per block of queries. For some head sizes, some warps have less
/// to do; the compiled code is that of the others.
TYPED_TEST(FlashPage, ListsSizesAndInstructionsOfTheKernels) {
  using T = typename TypeParam::T;
  constexpr int K = TypeParam::head_size;
  using Forward = FlashForwardTile<K>;
  using Backward = FlashBackwardTile<K>;
  static_assert(has_flash_kernel(K));
  Row forward = page_row("FlashForward", text(K));
  Row backward = page_row("FlashBackward", text(K));
  expect_sizes<Forward>(forward);
  expect_sizes<Backward>(backward);

  const AttentionShape step{1, Forward::keys, 1, 1, K, false};
  flash_cases::EmulatedAttention<T, K> one(testing::uniform<T>(step.tokens() * 3 * K, 1), step, {});
  one.forward();
  EXPECT_EQ(forward["HMMA"], text(one.grid.report.most.products));
  EXPECT_EQ(forward["LDSM"], text(one.grid.report.most.matrix_loads));

  const AttentionShape block{1, Backward::keys, 1, 1, K, false};
  flash_cases::EmulatedAttention<T, K> all(testing::uniform<T>(block.tokens() * 3 * K, 1), block,
                                           {});
  all.forward();
  all.backward(testing::uniform<T>(block.tokens() * K, 2));
  constexpr int steps = Backward::keys / Backward::queries;
  EXPECT_EQ(backward["HMMA"], text(all.grid.report.most.products / steps));
  EXPECT_EQ(backward["LDSM"], text(all.grid.report.most.matrix_loads / steps));
}

template <class Tile>
void expect_group_sizes(Row row, int helper_registers, int group_registers) {
  EXPECT_EQ(row["queries × keys"], text(Tile::queries, " × ", Tile::keys));
  EXPECT_EQ(row["threads, blocks per SM"], text(Tile::threads, ", 1"));
  EXPECT_EQ(row["helpers, groups"], text(helper_registers, ", ", group_registers));
  const std::uint32_t tenths = (Tile::shared_bytes * 10 + 1023) / 1024;  // rounded up
  EXPECT_EQ(row["shared memory"], text(tenths / 10, ".", tenths % 10, " KiB"));
}
template <class Tile>
void expect_forward_sizes(const Row& row) {
  expect_group_sizes<Tile>(row, Tile::producer_registers, Tile::consumer_registers);
}

template <class C>
class GroupPage : public ::testing::Test {};
using GroupSizes = ::testing::Types<flash_cases::Case<Bf16, 64>, flash_cases::Case<Bf16, 96>,
                                    flash_cases::Case<Bf16, 128>, flash_cases::Case<Bf16, 192>,
                                    flash_cases::Case<Bf16, 256>>;
TYPED_TEST_SUITE(GroupPage, GroupSizes);

/// The code of the forward kernel multiplies the first scores, in its loop scores and values, and
/// the last values: as often as a group of two blocks of keys.
TYPED_TEST(GroupPage, ListsSizesAndInstructionsOfTheForwardKernel) {
  constexpr int K = TypeParam::head_size;
  using Tile = GroupForwardTile<K>;
  using Dropping = GroupForwardTile<K, true>;
  static_assert(has_group_forward(K) && Tile::keys == Dropping::keys);
  constexpr bool alike = Tile::threads == Dropping::threads;
  const Row row = page_row("GroupForward", text(K));
  const Row dropping = alike ? row : page_row("GroupForward", text(K, ", dropout"));
  expect_forward_sizes<Tile>(row);
  expect_forward_sizes<Dropping>(dropping);

  const AttentionShape two{1, 2 * Tile::keys, 1, 1, K, false};
  testing::EmulatedGroupAttention<Bf16, K> emulated(testing::uniform<Bf16>(two.tokens() * 3 * K, 1),
                                                    two, {});
  emulated.forward();
  for (const Row& each : {row, dropping})
    EXPECT_EQ(each.at("HGMMA"), text(emulated.grid.report.most.products));
}

/// The code of the backward kernel multiplies scores and their gradients before its loop, and all
/// five in it. A group of one step leaves before the gradients of the next one. If the groups have
/// sides of different widths, each has its own code.
TYPED_TEST(GroupPage, ListsSizesAndInstructionsOfTheBackwardKernel) {
  constexpr int K = TypeParam::head_size;
  using Tile = GroupBackwardTile<K>;
  static_assert(has_group_backward(K));
  const Row row = page_row("GroupBackward", text(K));
  expect_group_sizes<Tile>(row, Tile::helper_registers, Tile::group_registers);

  const AttentionShape one{1, std::min(Tile::queries, Tile::keys), 1, 1, K, false};
  testing::EmulatedGroupAttention<Bf16, K> emulated(testing::uniform<Bf16>(one.tokens() * 3 * K, 1),
                                                    one, {});
  emulated.forward();
  emulated.backward(testing::uniform<Bf16>(one.tokens() * K, 2));
  constexpr int codes = Tile::shares && K != 2 * Tile::side ? 2 : 1;
  EXPECT_EQ(row.at("HGMMA"), text(codes * (emulated.grid.report.most.products + K / 16)));
}

/// No head size without its row, and no kernel that the lists above leave out.
TEST(FlashPageRows, CoverAllHeadSizes) {
  std::vector<int> sizes;
  for (int size = 1; size <= 256; ++size)
    if (has_flash_kernel(size)) sizes.push_back(size);
  EXPECT_EQ(sizes, (std::vector<int>{16, 32, 64, 80, 96, 112, 128, 160, 192, 256}));
  sizes.clear();
  for (int size = 1; size <= 256; ++size)
    if (has_group_forward(size) || has_group_backward(size)) sizes.push_back(size);
  EXPECT_EQ(sizes, (std::vector<int>{64, 96, 128, 192, 256}));
}

}  // namespace
}  // namespace trireme::kernels

#endif
