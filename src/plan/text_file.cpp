#include <trireme/plan/text_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace trireme::plan {

std::string read_text_file(const std::string& path, const std::string& cited,
                           const std::string& remedy) {
  constexpr std::int64_t limit = std::int64_t{1} << 28;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  check_usage(std::filesystem::exists(status), cited, ": no such file", remedy);
  expect_file(path, cited, true);
  std::ifstream in(path, std::ios::binary);
  check_usage(in.is_open(), cited, ": cannot be opened for reading");
  std::string content;
  std::string block(1 << 16, '\0');
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    content.append(block, 0, static_cast<std::size_t>(in.gcount()));
    check_usage(static_cast<std::int64_t>(content.size()) <= limit, cited, ": has more than ",
                human_bytes(limit), "; is it the right file?");
  }
  check_usage(!in.bad(), cited, ": cannot be read");
  return content;
}

}  // namespace trireme::plan
