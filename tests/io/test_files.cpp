#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>

#include <support/messages.hpp>
#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace trireme::io {
namespace {

using testing::message_of;
using testing::read_file;
using testing::TemporaryFolder;

std::int64_t files_in(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST(AtomicFile, AppearsOnlyAtCommit) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "former");
  {
    AtomicFile file(path);
    file.write(0, "new", 3);
  }
  EXPECT_EQ(read_file(path), "former");
  EXPECT_EQ(files_in(folder.path()), 1);
  replace_file(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(AtomicFile, FollowsLinksAndRejectsOtherFileTypes) {
  const TemporaryFolder folder;
  const auto target = folder.write("target", "former");
  std::filesystem::create_symlink("target", folder.path() / "link");
  replace_file(folder.file("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "link"));
  EXPECT_EQ(read_file(target), "new");
  EXPECT_THROW(AtomicFile("/dev/null"), UsageError);
  EXPECT_THROW(AtomicFile(folder.path().string()), UsageError);
  EXPECT_THROW(AtomicFile(folder.file("missing/a")), UsageError);
}

TEST(AtomicFile, NamesTheFileOnAFullDisk) {
  const TemporaryFolder folder;
  const auto mounted = folder.path() / "small";
  std::filesystem::create_directory(mounted);
  if (mount("none", mounted.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "needs the right to mount a small file system";
  const auto path = (mounted / "a").string();
  const std::vector<char> data(200 << 10, 'x');
  std::string probed;
  std::string written;
  {
    AtomicFile file(path);
    probed = message_of([&] { file.probe_space(std::ssize(data)); });
    written = message_of([&] { file.write(0, data.data(), data.size()); });
  }
  const auto left = files_in(mounted);
  umount(mounted.c_str());
  EXPECT_EQ(left, 0);
  for (const auto& message : {probed, written}) {
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_NE(message.find("No space left"), std::string::npos) << message;
  }
}

TEST(AtomicFile, RemovesTemporaryFilesOnASignal) {
  const TemporaryFolder folder;
  for (const int number : {SIGINT, SIGTERM}) {
    const pid_t child = fork();
    if (child == 0) {
      remove_temporaries_on_signals();
      AtomicFile file(folder.file("a"));
      Spool spool(folder.file("a"));
      file.write(0, "x", 1);
      raise(number);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), number);
    EXPECT_EQ(files_in(folder.path()), 0);
  }
}

TEST(Spool, CopiesItsContentIntoTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.file("a");
  std::string expected;
  AtomicFile file(path);
  {
    Spool spool(path);
    for (int i = 0; i < 300; ++i) {
      const std::string part(10007, static_cast<char>('a' + i % 26));
      spool.append(part.data(), part.size());
      expected += part;
    }
    EXPECT_EQ(spool.bytes(), std::ssize(expected));
    spool.copy_to(file, 13);
  }
  file.write(0, "0123456789abc", 13);
  file.commit();
  EXPECT_TRUE(read_file(path) == "0123456789abc" + expected);
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(InputFile, ReadsAnywhereAndReportsTheEndOfTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "0123456789");
  const InputFile file(path);
  EXPECT_EQ(file.size(), 10);
  char three[3];
  file.read(4, three, 3);
  EXPECT_EQ(std::string(three, 3), "456");
  const auto message = message_of([&] { file.read(8, three, 3); });
  EXPECT_NE(message.find("ends after 10 bytes"), std::string::npos) << message;
  EXPECT_THROW(InputFile(folder.path().string()), UsageError);
  EXPECT_THROW(InputFile(folder.file("b")), UsageError);
}

TEST(InputFile, ChecksumCoversTheBytes) {
  const std::string data(3 << 20, 'x');  // more than one piece
  const TemporaryFolder folder;
  EXPECT_EQ(file_checksum(folder.write("a", data)), checksum(data.data(), data.size()));
}

TEST(TextReader, ReadsPlainFilesInPieces) {
  const TemporaryFolder folder;
  const std::string content(1000003, 'q');
  TextReader reader(folder.write("a", content));
  std::string found;
  std::vector<char> buffer(4099);
  while (const auto bytes = reader.read(buffer)) found.append(buffer.data(), bytes);
  EXPECT_TRUE(found == content);
  EXPECT_THROW(TextReader(folder.path().string()), UsageError);
  EXPECT_THROW(TextReader(folder.file("b")), UsageError);
}

}  // namespace
}  // namespace trireme::io
