#pragma once

#include <string>

namespace trireme::commands {

/// `path` if it is a checkpoint, or the latest intact one of a folder of them. UsageError if it is
/// neither.
std::string checkpoint_folder(const std::string& path);

}  // namespace trireme::commands
