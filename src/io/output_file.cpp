#include <trireme/io/output_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/log.hpp>
#include <trireme/io/atomic_file.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace trireme::io {
namespace {

namespace fs = std::filesystem;

void write_stream(const std::string& path, std::string_view content) {
  errno = 0;
  std::ofstream out(path, std::ios::binary);
  out << content << std::flush;
  check(out.good(), std::strerror(errno));
}

}  // namespace

void write_output(const std::string& path, std::string_view content, const std::string& remedy) {
  std::error_code unknown;
  const fs::file_status status = fs::status(path, unknown);
  try {
    if (fs::exists(status) && !fs::is_regular_file(status))
      write_stream(path, content);
    else
      replace_file(path, content);
  } catch (const Error& error) {
    std::string_view reason = error.what();
    if (reason.starts_with(path + ": ")) reason.remove_prefix(path.size() + 2);
    reason = reason.substr(0, reason.find("  [src/"));
    throw UsageError(text(path, ": cannot be written: ", reason, remedy));
  }
}

void write_json(const std::string& path, const std::string& json) {
  if (path == "-")
    log::line(json);
  else
    write_output(path, json + "\n", "; choose another file for --json");
}

void expect_writable(const std::string& path) {
  const std::string kind = not_a_file(path);
  if (!path.empty() && (kind.empty() || kind == "a folder")) AtomicFile{path};
}

}  // namespace trireme::io
