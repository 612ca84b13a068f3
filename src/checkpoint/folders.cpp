#include <trireme/checkpoint/folders.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/folder_entries.hpp>
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

/// Whether `latest` names an existing checkpoint before `from`.
bool names_what_stays(const std::string& directory, std::int64_t from) {
  std::string name;
  try {
    name = io::read_text_file(directory + "/" + latest_name);
  } catch (const Error&) {
    return false;  // the file cannot be read
  }
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

std::string move_aside(const std::string& directory, std::int64_t from) {
  std::vector<std::string> names = folders_in(directory);
  std::erase_if(names, [&](const std::string& name) { return *step_of(name) < from; });
  std::error_code missing;
  if (fs::is_regular_file(directory + "/" + latest_name, missing) &&
      !names_what_stays(directory, from))
    names.insert(names.begin(), latest_name);  // first, so that it never names a moved checkpoint
  if (names.empty()) return "";
  std::string folder = new_folder(directory);
  for (const auto& name : names) move_into(folder, directory, name);
  io::flush_folder(folder);
  io::flush_folder(directory);
  return folder;
}

}  // namespace trireme::checkpoint
