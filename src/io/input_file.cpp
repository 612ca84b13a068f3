#include <trireme/io/input_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace trireme::io {
namespace {

constexpr std::int64_t block_bytes = 1 << 20;

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path), descriptor_(open_input(path, path)) {
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  const int error = errno;
  if (!known) ::close(std::exchange(descriptor_, -1));  // the destructor will not run
  check(known, path, ": cannot read its size: ", std::strerror(error));
  size_ = status.st_size;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      size_(other.size_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void InputFile::read(std::int64_t offset, void* out, std::size_t bytes) const {
  auto* at = static_cast<char*>(out);
  std::size_t done = 0;
  while (done < bytes) {
    const auto got =
        ::pread(descriptor_, at + done, bytes - done, offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    check(got >= 0, path_, ": cannot read at byte ", offset, ": ", std::strerror(errno));
    check(got > 0, path_, ": ends after ", offset + static_cast<std::int64_t>(done),
          " bytes, expected at least ", offset + static_cast<std::int64_t>(bytes),
          "; the file is truncated");
    done += static_cast<std::size_t>(got);
  }
}

void InputFile::for_each_block(
    std::int64_t begin, std::int64_t end,
    const std::function<void(const std::byte*, std::size_t)>& use) const {
  if (begin >= end) return;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(block_bytes, end - begin)));
  for (std::int64_t at = begin; at < end; at += block_bytes) {
    const auto bytes = static_cast<std::size_t>(std::min(block_bytes, end - at));
    read(at, buffer.data(), bytes);
    use(buffer.data(), bytes);
  }
}

std::string read_text_file(const std::string& path, std::int64_t limit_bytes) {
  const InputFile file(path);
  check(file.size() <= limit_bytes, path, ": has ", file.size(), " bytes, expected at most ",
        limit_bytes);
  std::string content(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, content.data(), content.size());
  return content;
}

Digest file_checksum(const std::string& path) {
  const InputFile file(path);
  Checksum sum;
  file.for_each_block(0, file.size(),
                      [&](const std::byte* data, std::size_t bytes) { sum.update(data, bytes); });
  return sum.digest();
}

}  // namespace trireme::io
