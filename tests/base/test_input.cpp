#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>

#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

namespace trireme {
namespace {

using testing::TemporaryFolder;

std::string refusal(const std::string& path, bool streams = false) {
  try {
    ::close(open_input(path, "CITED", streams));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Input, OpensOnlyFilesAndNeverBlocks) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("pipe", folder.file("link").c_str()), 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string place = folder.file("socket");
  ASSERT_LT(place.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, place.c_str(), place.size() + 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (const bool streams : {false, true}) {
    EXPECT_EQ(refusal(folder.file("pipe"), streams), "CITED: is a named pipe, expected a file");
    EXPECT_EQ(refusal(folder.file("link"), streams), "CITED: is a named pipe, expected a file");
    EXPECT_EQ(refusal(place, streams), "CITED: is a socket, expected a file");
    EXPECT_EQ(refusal("/dev/zero", streams), "CITED: is a device, expected a file");
    EXPECT_EQ(refusal(folder.file(""), streams), "CITED: is a folder, expected a file");
    EXPECT_EQ(refusal(folder.file("none"), streams),
              "CITED: cannot open: No such file or directory");
  }
  ::close(socket);
}

TEST(Input, ReadsAFile) {
  const TemporaryFolder folder;
  const int descriptor = open_input(folder.write("a", "text"), "a");
  char content[8] = {};
  EXPECT_EQ(::read(descriptor, content, sizeof content), 4);
  EXPECT_STREQ(content, "text");
  ::close(descriptor);
}

TEST(Input, ReadsAnInheritedPipeAsAStream) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  EXPECT_EQ(refusal(path), "CITED: is a named pipe, expected a file");
  const int descriptor = open_input(path, path, true);
  char content = 0;
  EXPECT_EQ(::read(descriptor, &content, 1), 1);
  EXPECT_EQ(content, 'x');
  for (const int end : {descriptor, ends[0], ends[1]}) ::close(end);
}

TEST(PlainMessage, OmitsNamesOfLibraryFunctions) {
  const std::error_code denied = std::make_error_code(std::errc::permission_denied);
  EXPECT_EQ(
      plain_message(std::filesystem::filesystem_error("cannot create directories", "/x/y", denied)),
      "/x/y: Permission denied");
  EXPECT_EQ(plain_message(std::system_error(denied, "stoi")), "Permission denied");
  EXPECT_EQ(plain_message(UsageError("as it is")), "as it is");
  const std::string memory = plain_message(std::bad_alloc());
  EXPECT_EQ(memory.find("bad_alloc"), std::string::npos);
  EXPECT_NE(memory.find("not enough memory"), std::string::npos);
  const std::string json = plain_message(
      std::runtime_error("[json.exception.type_error.302] type must be string, but is null"));
  EXPECT_EQ(json.find("json.exception"), std::string::npos);
  EXPECT_NE(json.find("type must be string"), std::string::npos);
  EXPECT_TRUE(json.starts_with("internal error: "));
}

}  // namespace
}  // namespace trireme
