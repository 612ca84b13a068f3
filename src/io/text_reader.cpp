#include <trireme/io/text_reader.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace trireme::io {
namespace {

constexpr unsigned buffer_bytes = 256 << 10;

struct Format {
  std::string_view magic;
  std::string_view name;
  std::string_view unpack;
};
using namespace std::string_view_literals;
constexpr std::array<Format, 6> refused{{{"\x28\xB5\x2F\xFD"sv, "zstd", "zstd -dc"},
                                         {"\xFD\x37zXZ\0"sv, "xz", "xz -dc"},
                                         {"BZh"sv, "bzip2", "bzip2 -dc"},
                                         {"PK\x03\x04"sv, "zip", "unzip -p"},
                                         {"TRIREME TOKENS\n"sv, "token", ""},
                                         {"\x89HDF\r\n\x1A\n"sv, "HDF5", ""}}};

void refuse_other_formats(const std::string& path, std::string_view start) {
  for (const auto& format : refused) {
    if (!start.starts_with(format.magic)) continue;
    check_usage(!format.unpack.empty(), path, " is a ", format.name,
                " file; give text, plain or gzip");
    throw UsageError(text(path, ": is compressed with ", format.name,
                          ", which cannot be read directly; pass its text on standard input: ",
                          format.unpack, " FILE | trireme tokenize ... -"));
  }
}

}  // namespace

struct TextReader::State {
  std::string path;
  gzFile stream = nullptr;
  bool first = true;
};

TextReader::TextReader(const std::string& path) : state_(std::make_unique<State>()) {
  state_->path = path == "-" ? "standard input" : path;
  const int descriptor = path == "-" ? ::dup(STDIN_FILENO) : open_input(path, path, true);
  check_usage(descriptor >= 0, state_->path, ": cannot open: ", std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || S_ISDIR(status.st_mode)) {
    ::close(descriptor);
    throw UsageError(text(state_->path, ": is a folder, expected a text file"));
  }
  state_->stream = ::gzdopen(descriptor, "rb");
  if (state_->stream == nullptr) ::close(descriptor);
  check(state_->stream != nullptr, state_->path, ": not enough memory to read it");
  ::gzbuffer(state_->stream, buffer_bytes);
}

TextReader::~TextReader() {
  if (state_->stream != nullptr) ::gzclose_r(state_->stream);
}

std::size_t TextReader::read(std::span<char> out) {
  const auto wanted = static_cast<unsigned>(std::min<std::size_t>(out.size(), 1u << 30));
  const int got = ::gzread(state_->stream, out.data(), wanted);
  if (got < 0 || static_cast<unsigned>(got) < wanted) {
    int code = Z_OK;
    const char* message = ::gzerror(state_->stream, &code);
    check(code != Z_BUF_ERROR, state_->path, ": the gzip data is truncated; fetch the file again");
    check(code != Z_ERRNO, state_->path, ": cannot read: ", std::strerror(errno));
    check(code == Z_OK || code == Z_STREAM_END, state_->path, ": the gzip data is damaged (",
          message, "); check it with `gzip -t` and fetch it again");
  }
  if (std::exchange(state_->first, false))
    refuse_other_formats(state_->path, {out.data(), static_cast<std::size_t>(got)});
  return static_cast<std::size_t>(got);
}

}  // namespace trireme::io
