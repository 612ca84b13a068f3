#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/previous.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Whether `latest` names a checkpoint before `from` that is there.
bool names_what_stays(const std::string& directory, std::int64_t from) {
  std::string name = io::read_text_file(directory + "/" + latest_name);
  name.erase(name.find_last_not_of(" \r\n\t") + 1);
  const auto step = step_of(name);
  std::error_code missing;
  return step && *step < from && fs::is_directory(directory + "/" + name, missing);
}

std::string new_folder(const std::string& directory) {
  for (int n = 1;; ++n) {
    const std::string folder = text(directory, "/previous-", n);
    std::error_code error;
    if (fs::create_directory(folder, error)) return folder;
    check_usage(fs::exists(folder), folder, ": cannot create this folder (", error.message(),
                "), to which the checkpoints of an earlier run must step aside; ",
                "choose another [checkpoint] directory");
  }
}

void move_into(const std::string& folder, const std::string& directory, const std::string& name) {
  std::error_code error;
  fs::rename(directory + "/" + name, folder + "/" + name, error);
  check_usage(!error, directory, "/", name, ": cannot move it to ", folder, " (", error.message(),
              "); choose another [checkpoint] directory");
}

}  // namespace

std::string move_aside(const std::string& directory, std::int64_t from) {
  std::vector<std::string> names = folders_in(directory);
  std::erase_if(names, [&](const std::string& name) { return *step_of(name) < from; });
  std::error_code missing;
  if (fs::is_regular_file(directory + "/" + latest_name, missing) &&
      !names_what_stays(directory, from))
    names.insert(names.begin(), latest_name);  // first: it must not name what has gone
  if (names.empty()) return "";
  std::string folder = new_folder(directory);
  for (const auto& name : names) move_into(folder, directory, name);
  io::flush_folder(folder);
  io::flush_folder(directory);
  return folder;
}

}  // namespace trireme::checkpoint
