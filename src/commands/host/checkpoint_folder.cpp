#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/checkpoint_folder.hpp>

#include <filesystem>

namespace trireme::commands {

std::string checkpoint_folder(const std::string& path) {
  check_usage(std::filesystem::is_directory(path), path, ": is no checkpoint folder");
  if (std::filesystem::exists(path + "/" + checkpoint::manifest_name)) return path;
  const auto newest = checkpoint::latest(path);
  check_usage(newest.has_value(), path,
              ": is neither a checkpoint nor a folder with whole checkpoints");
  return *newest;
}

}  // namespace trireme::commands
