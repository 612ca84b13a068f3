#include <trireme/hugging_face/axis_order.hpp>

#include "support.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace trireme::hugging_face {
namespace {

using namespace testing;

/// Positions in memory of the file's elements, in the order of the file.
std::vector<std::int64_t> positions(const Extents& extents, const std::vector<std::size_t>& axes) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(checkpoint::volume(extents)));
  for (std::size_t i = 0; i < out.size(); ++i) {
    Extents index(extents.size());
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t place = axes.size(); place-- > 0;) {
      index[axes[place]] = rest % extents[axes[place]];
      rest /= extents[axes[place]];
    }
    for (std::size_t axis = 0; axis < extents.size(); ++axis)
      out[i] = out[i] * extents[axis] + index[axis];
  }
  return out;
}

template <class T>
void expect_reordered(const Extents& extents, const std::vector<std::size_t>& axes,
                      std::int64_t most, std::int64_t split) {
  const AxisOrder order(extents, axes);
  ASSERT_EQ(order.rows(), extents.front());
  const auto expected = positions(extents, axes);
  std::vector<T> memory(expected.size()), file, back(expected.size(), T{99});
  std::iota(memory.begin(), memory.end(), T{0});
  // The rows of two pieces: [0, split) and [split, rows).
  T* second = back.data() + split * order.row_elements();
  for (const auto& panel : order.panels(most)) {
    ASSERT_EQ(panel.first, std::ssize(file));
    ASSERT_TRUE(panel.count >= 1 && panel.count <= most);
    std::vector<T> values(static_cast<std::size_t>(panel.count), T{99});
    order.to_file(memory.data(), 0, order.rows(), sizeof(T), panel, values.data());
    order.to_memory(panel, values.data(), 0, split, sizeof(T), back.data());
    order.to_memory(panel, values.data(), split, order.rows(), sizeof(T), second);
    file.insert(file.end(), values.begin(), values.end());
  }
  ASSERT_EQ(file.size(), memory.size());
  for (std::size_t i = 0; i < file.size(); ++i)
    ASSERT_EQ(file[i], static_cast<T>(expected[i])) << i;
  ASSERT_EQ(back, memory);
}

TEST(AxisOrder, EveryOrderOfAxesIsCopiedInPanelsOfAnySize) {
  std::vector<std::size_t> axes{0, 1, 2, 3};
  do {
    for (const std::int64_t most : {1, 2, 7, 20, 35, 209, 210}) {
      expect_reordered<std::uint16_t>({3, 2, 5, 7}, axes, most, 1);
      expect_reordered<std::uint32_t>({3, 2, 1, 7}, axes, most, 0);
      expect_reordered<double>({1, 1, 5, 1}, axes, most, 1);
    }
  } while (std::ranges::next_permutation(axes).found);
}

TEST(AxisOrder, MatricesLargerThanATileAreTransposed) {
  for (const std::int64_t most : {64, 1000, 100'000}) {
    expect_reordered<std::uint16_t>({37, 51}, {1, 0}, most, 30);
    expect_reordered<std::uint32_t>({51, 37}, {1, 0}, most, 17);
    expect_reordered<double>({64, 16}, {1, 0}, most, 16);
    expect_reordered<double>({3, 2, 18, 20}, {0, 3, 2, 1}, most, 2);
    expect_reordered<std::uint32_t>({4, 2, 3, 33}, {0, 2, 1, 3}, most, 1);
  }
}

TEST(AxisOrder, AFileHasTheOrderOfMemoryUnlessAxesAreGiven) {
  const AxisOrder order({3, 4}, {});
  const auto panels = order.panels(5);
  ASSERT_EQ(panels.size(), 3u) << "whole rows";
  EXPECT_EQ(panels[1].first, 4);
  const std::vector<double> memory{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<double> row(4);
  order.to_file(memory.data(), 0, 3, 8, panels[1], row.data());
  EXPECT_EQ(row, (std::vector<double>{4, 5, 6, 7}));
}

TEST(AxisOrder, RejectsMissingAxesAndOtherElements) {
  for (const std::vector<std::size_t>& axes :
       {std::vector<std::size_t>{0, 0}, {0, 2}, {0}, {0, 1, 2}})
    expect_mentions(message_of([&] {
                      AxisOrder({2, 3}, axes);
                    }),
                    {"[2, 3]", "expected each axis once"});
  const AxisOrder order({2, 3}, {1, 0});
  const auto panel = order.panels(6).front();
  std::array<double, 6> values{};
  expect_mentions(message_of([&] { order.to_file(values.data(), 0, 2, 3, panel, values.data()); }),
                  {"3 bytes"});
}

}  // namespace
}  // namespace trireme::hugging_face
