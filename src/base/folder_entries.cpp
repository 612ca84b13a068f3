#include <trireme/base/folder_entries.hpp>

#include <trireme/base/check.hpp>

#include <system_error>

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::vector<fs::directory_entry> entries_until_error(const std::string& folder,
                                                     std::error_code& error) {
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error))
    entries.push_back(*at);
  return entries;
}

}  // namespace

std::vector<fs::directory_entry> entries_of(const std::string& folder) {
  std::error_code error;
  auto entries = entries_until_error(folder, error);
  const bool absent =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  check(!error || absent, folder, ": cannot list its files: ", error.message());
  return entries;
}

std::vector<fs::directory_entry> readable_entries_of(const std::string& folder) {
  std::error_code ignored;
  return entries_until_error(folder, ignored);
}

}  // namespace trireme
