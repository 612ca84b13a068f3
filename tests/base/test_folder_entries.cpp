#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>

#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <string>

namespace trireme {
namespace {

TEST(FolderEntries, AreEmptyWithoutAFolderAndAnErrorIfUnreadable) {
  const testing::TemporaryFolder folder;
  folder.write("a", "");
  folder.write("b", "");
  EXPECT_EQ(entries_of(folder.path().string()).size(), 2u);
  EXPECT_TRUE(entries_of(folder.file("c")).empty());
  EXPECT_TRUE(entries_of(folder.file("a")).empty());
  const std::string loop = folder.file("loop");
  std::filesystem::create_symlink(loop, loop);
  EXPECT_TRUE(readable_entries_of(loop).empty());
  try {
    entries_of(loop);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(loop + ": cannot list its files: "), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme
