// Reads files at any offset, or text sequentially: plain bytes, or the members of a gzip file
// through zlib's inflate(). zlib's own reader, gzread(), drops data after a stray byte between
// members.
#include <trireme/io/input_file.hpp>

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

namespace {

constexpr unsigned buffer_bytes = 256 << 10;
constexpr int gzip_window_bits = 15 + 16;  // zlib: the largest window, with gzip's header
constexpr std::array<unsigned char, 2> gzip_magic{0x1F, 0x8B};

bool is_gzip(std::span<const unsigned char> bytes) {
  return bytes.size() >= gzip_magic.size() &&
         std::ranges::equal(bytes.first(gzip_magic.size()), gzip_magic);
}

struct Format {
  std::string_view magic;
  std::string_view what;
  std::string_view unpack;  ///< empty: the file contains no text
};
using namespace std::string_view_literals;
constexpr std::array<Format, 9> refused{
    {{"\x28\xB5\x2F\xFD"sv, "compressed with zstd", "zstd -dc FILE"},
     {"\xFD\x37zXZ\0"sv, "compressed with xz", "xz -dc FILE"},
     {"BZh"sv, "compressed with bzip2", "bzip2 -dc FILE"},
     {"PK\x03\x04"sv, "compressed with zip", "unzip -p FILE"},
     {"%PDF-"sv, "a PDF document", "pdftotext FILE -"},
     {"\xFF\xFE"sv, "text in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"},
     {"\xFE\xFF"sv, "text in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"},
     {"TRIREME TOKENS\n"sv, "a token file", ""},
     {"\x89HDF\r\n\x1A\n"sv, "an HDF5 file", ""}}};

void refuse_other_formats(const std::string& path, std::string_view start) {
  for (const auto& format : refused) {
    if (!start.starts_with(format.magic)) continue;
    check_usage(!format.unpack.empty(), path, " is ", format.what, "; give text, plain or gzip");
    throw UsageError(text(path, ": is ", format.what,
                          ", which cannot be read directly; pass its text on standard input: ",
                          format.unpack, " | trireme tokenize ... -"));
  }
}

}  // namespace

struct TextReader::State {
  std::string path;
  int descriptor = -1;
  std::vector<unsigned char> input = std::vector<unsigned char>(buffer_bytes);
  z_stream stream{};  // next_in and avail_in: unused bytes of `input`
  std::int64_t input_end = 0;
  enum class Content { unknown, plain, gzip, end } content = Content::unknown;
  bool first = true;

  bool fill();
  std::size_t inflate_some(std::span<char> out);
  void end_member();
};

/// Appends bytes of the file to the unused bytes in `input`. Returns false at the end of the file.
bool TextReader::State::fill() {
  std::copy_n(stream.next_in, stream.avail_in, input.data());
  stream.next_in = input.data();
  ssize_t got = -1;
  do got = ::read(descriptor, input.data() + stream.avail_in, input.size() - stream.avail_in);
  while (got < 0 && errno == EINTR);
  check(got >= 0, path, ": cannot read: ", std::strerror(errno));
  stream.avail_in += static_cast<unsigned>(got);
  input_end += got;
  return got > 0;
}

std::size_t TextReader::State::inflate_some(std::span<char> out) {
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<unsigned>(out.size());
  while (content == Content::gzip && stream.avail_out > 0) {
    if (stream.avail_in == 0)
      check(fill(), path, ": the gzip data is truncated; fetch the file again");
    const int code = ::inflate(&stream, Z_NO_FLUSH);
    check(code == Z_OK || code == Z_BUF_ERROR || code == Z_STREAM_END, path,
          ": the gzip data is damaged (", stream.msg != nullptr ? stream.msg : ::zError(code),
          "); check it with `gzip -t` and fetch it again");
    if (code == Z_STREAM_END) end_member();
  }
  return out.size() - stream.avail_out;
}

/// Begins the next member, or ends the text. Zeros may pad the end of the file, as `gzip` permits;
/// other trailing bytes are an Error.
void TextReader::State::end_member() {
  while (stream.avail_in < gzip_magic.size() && fill()) continue;
  const std::int64_t end = input_end - stream.avail_in;
  if (is_gzip({stream.next_in, stream.avail_in})) {
    ::inflateReset(&stream);
    return;
  }
  do {
    const std::span<const unsigned char> rest(stream.next_in, stream.avail_in);
    check(std::ranges::all_of(rest, [](unsigned char byte) { return byte == 0; }), path,
          ": has trailing bytes after the gzip data, from byte ", end,
          " on; check it with `gzip -t` and fetch it again");
    stream.avail_in = 0;
  } while (fill());
  content = Content::end;
}

TextReader::TextReader(const std::string& path) : state_(std::make_unique<State>()) {
  state_->path = path == "-" ? "standard input" : path;
  state_->descriptor = path == "-" ? ::dup(STDIN_FILENO) : open_input(path, path, true);
  check_usage(state_->descriptor >= 0, state_->path, ": cannot open: ", std::strerror(errno));
  struct stat status {};
  const bool is_file = ::fstat(state_->descriptor, &status) == 0 && !S_ISDIR(status.st_mode);
  state_->stream.next_in = state_->input.data();
  const int code = is_file ? ::inflateInit2(&state_->stream, gzip_window_bits) : Z_OK;
  if (is_file && code == Z_OK) return;
  ::close(state_->descriptor);  // the destructor will not run
  check_usage(is_file, state_->path, ": is a folder, expected a text file");
  check(false, state_->path, ": not enough memory to read it");
}

TextReader::~TextReader() {
  ::inflateEnd(&state_->stream);
  ::close(state_->descriptor);
}

std::size_t TextReader::read(std::span<char> out) {
  State& s = *state_;
  z_stream& stream = s.stream;
  using Content = State::Content;
  if (s.content == Content::unknown) {
    while (stream.avail_in < gzip_magic.size() && s.fill()) continue;
    const bool gzip = is_gzip({stream.next_in, stream.avail_in});
    s.content = gzip ? Content::gzip : Content::plain;
  }
  std::size_t got = 0;
  if (s.content == Content::gzip) {
    got = s.inflate_some(out.first(std::min<std::size_t>(out.size(), 1u << 30)));
  } else if (s.content == Content::plain) {
    while (got < out.size() && (stream.avail_in > 0 || s.fill())) {
      const std::size_t some = std::min<std::size_t>(out.size() - got, stream.avail_in);
      std::copy_n(stream.next_in, some, out.data() + got);
      stream.next_in += some;
      stream.avail_in -= static_cast<unsigned>(some);
      got += some;
    }
  }
  if (std::exchange(s.first, false)) refuse_other_formats(s.path, {out.data(), got});
  return got;
}

}  // namespace trireme::io
