#include <trireme/base/check.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/verify.hpp>

#include <checkpoint/support.hpp>
#include <support/small_disk.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using namespace checkpoint::testing;
using trireme::testing::SmallDisk;
using trireme::testing::TemporaryFolder;

constexpr std::int64_t roomy = 8 << 20;

/// Tries to write a second checkpoint with this much space. Returns the file that did not fit, or
/// "".
std::string full_at(std::int64_t free_bytes, const std::vector<TestArray>& arrays) {
  const TemporaryFolder folder;
  SmallDisk disk(folder.file("disk"), roomy);
  const std::string directory = folder.file("disk/c");
  const std::string first = save_cut(directory, 1, arrays, 0, 2);
  const auto space = fs::space(directory);
  const auto used = static_cast<std::int64_t>(space.capacity - space.free);
  EXPECT_TRUE(disk.resize(used + free_bytes));
  const auto message = message_of([&] { save_cut(directory, 2, arrays, 0, 2); });
  EXPECT_TRUE(disk.resize(roomy));
  std::string full;
  if (message != "no error") {
    expect_mentions(message,
                    {directory + "/step_00000002", "No space left on device", "free some space"});
    const auto at = message.find(".partial/");
    if (at != std::string::npos) full = message.substr(at + 9, message.find(": ", at) - at - 9);
    abandon(directory, 2);
    EXPECT_EQ(latest(directory), first);
    EXPECT_EQ(names_in(directory), (std::vector<std::string>{"latest", "step_00000001"}));
    verify(first);
    save_cut(directory, 2, arrays, 0, 2);
  }
  EXPECT_EQ(latest(directory), directory + "/step_00000002");
  verify(directory + "/step_00000002");
  EXPECT_EQ(names_in(directory),
            (std::vector<std::string>{"latest", "step_00000001", "step_00000002"}));
  return full;
}

/// Whichever file does not fit, the error names it, the former checkpoint stays, and the write
/// succeeds once there is space.
TEST(FullDisk, NamesTheFileAndKeepsThePreviousCheckpoint) {
  const std::vector<TestArray> arrays{{"weight", DType::fp32, {400, 300}},
                                      {"group/half", DType::bf16, {8, 5}}};
  {
    const TemporaryFolder folder;
    const SmallDisk disk(folder.file("disk"), roomy);
    if (!disk.why_not().empty()) GTEST_SKIP() << disk.why_not();
  }
  std::vector<std::string> files;
  constexpr std::int64_t most = 4 << 20;
  for (std::int64_t room = 4096; room < most; room += room < 65536 ? 8192 : 65536) {
    const std::string file = full_at(room, arrays);
    if (files.empty() || files.back() != file) files.push_back(file);
    if (file.empty()) break;
  }
  EXPECT_EQ(files,
            (std::vector<std::string>{"shard_000000.h5", "shard_000001.h5", "index.h5", ""}));
}

TEST(FullDisk, ReportsAFolderRemovedDuringAWrite) {
  const TemporaryFolder folder;
  const std::string directory = folder.file("c");
  const TestArray array("weight", DType::fp32, {4, 3});
  const std::vector<SliceView> slices{
      {"weight", DType::fp32, {4, 3}, {0, 0}, {4, 3}, array.bytes.data()}};
  const std::string partial = begin(directory, 1);
  fs::remove_all(directory);
  expect_mentions(message_of([&] { write_shard(partial, 0, slices); }),
                  {partial + "/shard_000000.h5", "No such file or directory"});
  const auto shard = write_shard(begin(directory, 1), 0, slices);
  fs::remove_all(directory);
  expect_mentions(message_of([&] {
                    commit(directory, {1, 1, ""}, {shard}, {});
                  }),
                  {partial + "/shard_000000.h5", "missing"});
  commit(directory, {1, 1, ""}, {write_shard(begin(directory, 1), 0, slices)}, {});
  verify(directory + "/step_00000001");
}

}  // namespace
}  // namespace trireme::checkpoint
