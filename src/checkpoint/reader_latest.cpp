#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/verify.hpp>

#include <algorithm>
#include <filesystem>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The checkpoint that the file `latest` names, if it exists.
std::optional<std::string> named_latest(const std::string& directory) {
  const std::string path = directory + "/" + latest_name;
  std::error_code missing;
  if (!fs::is_regular_file(path, missing)) return std::nullopt;
  std::string name;
  try {
    name = io::read_text_file(path);
  } catch (const Error& error) {
    log::warn(text(error.what(), "; the newest intact checkpoint is used"));
    return std::nullopt;
  }
  name.erase(name.find_last_not_of(" \r\n\t") + 1);
  if (step_of(name) && fs::is_directory(directory + "/" + name, missing)) return name;
  log::warn(text(path, ": names '", name.substr(0, 80),
                 "', which is not a checkpoint in this directory"));
  return std::nullopt;
}

/// Whether it was completed after `latest` was written: by a run that was killed before it could
/// update `latest`.
bool is_newer_than_latest(const std::string& directory, const std::string& name) {
  std::error_code missing;
  const auto named = fs::last_write_time(directory + "/" + latest_name, missing);
  if (missing) return false;
  const auto completed = fs::last_write_time(directory + "/" + name + "/" + manifest_name, missing);
  return !missing && completed > named;
}

bool intact(const std::string& folder) {
  try {
    verify_outline(folder, read_manifest(folder));
    return true;
  } catch (const Error& error) {
    log::warn(text("checkpoint ", folder, " is passed over: ", error.what()));
    return false;
  }
}

}  // namespace

std::optional<std::string> latest(const std::string& directory) {
  std::set<std::string> damaged;
  return latest(directory, damaged);
}

std::optional<std::string> latest(const std::string& directory, std::set<std::string>& damaged) {
  auto candidates = folders_in(directory);
  const auto newer = [&](const std::string& name) { return is_newer_than_latest(directory, name); };
  std::stable_partition(candidates.begin(), candidates.end(), newer);
  if (const auto named = named_latest(directory)) {
    std::erase(candidates, *named);
    candidates.insert(std::partition_point(candidates.begin(), candidates.end(), newer), *named);
  }
  for (const auto& name : candidates) {
    const std::string folder = directory + "/" + name;
    if (damaged.contains(folder)) continue;
    if (intact(folder)) return folder;
    damaged.insert(folder);
  }
  return std::nullopt;
}

std::string checkpoint_folder(const std::string& path) {
  check_usage(fs::is_directory(path), path, ": no such checkpoint folder");
  if (fs::exists(path + "/" + manifest_name)) return path;
  std::error_code missing;
  const std::string of_run = path + "/checkpoints";
  const bool is_run = fs::is_directory(of_run, missing);
  auto newest = latest(path);
  if (!newest && is_run) newest = latest(of_run);
  check_usage(newest.has_value(), path,
              is_run ? "/checkpoints has no complete checkpoint; "
                     : " is neither a checkpoint, nor a folder of complete checkpoints or of a "
                       "run; ",
              "give a folder such as step_00000100");
  return *newest;
}

}  // namespace trireme::checkpoint
