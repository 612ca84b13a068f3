#include <trireme/base/process.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace trireme {
namespace {

TEST(ProcessMemory, PeakCountsTouchedPagesAndStays) {
  const Bytes before = peak_resident_bytes();
  ASSERT_GT(before, 1 << 20);
  constexpr std::size_t size = std::size_t{96} << 20;
  {
    const auto memory = std::make_unique_for_overwrite<char[]>(size);
    EXPECT_LT(peak_resident_bytes() - before, 8 << 20) << "not touched yet";
    std::memset(memory.get(), 1, size);
    EXPECT_EQ(static_cast<volatile char*>(memory.get())[size / 2], 1);
  }
  const Bytes grown = peak_resident_bytes() - before;
  EXPECT_GT(grown, static_cast<Bytes>(size) - (8 << 20));
  EXPECT_LT(grown, static_cast<Bytes>(size) + (8 << 20));
}

}  // namespace
}  // namespace trireme
