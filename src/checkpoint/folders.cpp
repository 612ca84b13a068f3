// Names of checkpoint folders, the files `latest` and `latest.partial`, and folders moved aside.
#include <trireme/checkpoint/folders.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "step_";
constexpr std::size_t digits = 8;

std::string trimmed(std::string name) {
  name.erase(name.find_last_not_of(" \r\n\t") + 1);
  return name;
}

std::string note_path(const std::string& directory) {
  return directory + "/" + announcement_name;
}

/// Whether `latest` names an existing checkpoint that is not in `going`.
bool names_what_stays(const std::string& directory, const std::vector<std::string>& going) {
  std::string name;
  try {
    name = read_latest(directory);
  } catch (const Error&) {
    return false;
  }
  std::error_code missing;
  return step_of(name) && std::ranges::find(going, name) == going.end() &&
         fs::is_directory(directory + "/" + name, missing);
}

std::string new_folder(const std::string& directory) {
  for (int n = 1;; ++n) {
    const std::string folder = text(directory, "/previous-", n);
    std::error_code error;
    if (fs::create_directory(folder, error)) return folder;
    check_usage(fs::exists(folder), folder,
                ": cannot create this folder for the checkpoints of an earlier run (",
                error.message(), "); choose another [checkpoint] directory");
  }
}

void move_into(const std::string& folder, const std::string& directory, const std::string& name) {
  std::error_code error;
  fs::rename(directory + "/" + name, folder + "/" + name, error);
  check_usage(!error, directory, "/", name, ": cannot move it to ", folder, " (", error.message(),
              "); choose another [checkpoint] directory");
}

}  // namespace

std::string folder_name(std::int64_t step) {
  const std::string number = text(step);
  return text(prefix, std::string(digits - std::min(digits, number.size()), '0'), number);
}

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc{} || at != end || folder_name(step) != name) return std::nullopt;
  return step;
}

std::vector<std::string> folders_in(const std::string& directory) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const auto& entry : entries_of(directory)) {
    auto name = entry.path().filename().string();
    if (const auto step = step_of(name); step && entry.is_directory())
      found.emplace_back(*step, std::move(name));
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [step, name] : found) names.push_back(std::move(name));
  return names;
}

std::string read_latest(const std::string& directory) {
  const fs::path path = fs::path(directory) / latest_name;
  std::error_code missing;
  if (fs::is_symlink(path, missing) && fs::is_directory(path, missing)) {
    const fs::path target = fs::canonical(path);
    return fs::equivalent(target.parent_path(), directory, missing) ? target.filename().string()
                                                                    : target.string();
  }
  if (!fs::exists(path, missing) && !missing) return "";
  return trimmed(io::read_text_file(path.string()));
}

void write_latest(const std::string& directory, const std::string& name) {
  const std::string path = directory + "/" + latest_name;
  std::error_code ignored;
  if (fs::is_symlink(path, ignored)) fs::remove(path, ignored);
  io::replace_file(path, name + "\n");
}

void settle_latest(const std::string& directory, const std::string& name) {
  const std::string path = directory + "/" + latest_name;
  std::error_code missing;
  try {
    if (read_latest(directory) != name || fs::is_symlink(path, missing))
      write_latest(directory, name);
  } catch (const Error&) {
    if (fs::is_directory(path, missing)) throw;  // the next checkpoint corrects other failures
  }
  withdraw(directory);
}

void announce(const std::string& directory, const std::string& name) {
  std::string former;
  try {
    former = read_latest(directory);
  } catch (const Error&) {  // an unreadable `latest` counts as empty
  }
  io::replace_file(note_path(directory), text(name, "\n", former, "\n"));
}

void withdraw(const std::string& directory) {
  std::error_code ignored;
  fs::remove(note_path(directory), ignored);
}

std::optional<std::string> announced(const std::string& directory) {
  try {
    const std::string note = io::read_text_file(note_path(directory), 4096);
    const std::string name = note.substr(0, note.find('\n'));
    std::error_code missing;
    if (step_of(name) && trimmed(note.substr(name.size() + 1)) == read_latest(directory) &&
        fs::is_directory(directory + "/" + name, missing))
      return name;
  } catch (const Error&) {  // the note does not exist or cannot be read
  }
  return std::nullopt;
}

std::string move_aside(const std::string& directory, const std::vector<std::string>& names) {
  std::vector<std::string> going;
  std::error_code missing;
  if (fs::exists(fs::symlink_status(directory + "/" + latest_name, missing)) &&
      !names_what_stays(directory, names))
    going.emplace_back(latest_name);  // first, so that `latest` never names a moved checkpoint
  going.insert(going.end(), names.begin(), names.end());
  if (going.empty()) return "";
  std::string folder = new_folder(directory);
  for (const auto& name : going) move_into(folder, directory, name);
  io::flush_folder(folder);
  io::flush_folder(directory);
  return folder;
}

}  // namespace trireme::checkpoint
