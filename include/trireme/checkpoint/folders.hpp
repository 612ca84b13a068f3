#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

inline constexpr const char* partial_suffix = ".partial";
inline constexpr const char* latest_name = "latest";
inline constexpr const char* deck_name = "deck.toml";
inline constexpr const char* manifest_name = "manifest.json";
inline constexpr const char* index_name = "index.h5";
inline constexpr const char* local_name = "local";  ///< names the run's local checkpoints

/// 100 -> "step_00000100"
std::string folder_name(std::int64_t step);
/// The inverse; no value for any other name.
std::optional<std::int64_t> step_of(const std::string& name);
/// Names of the finished checkpoints of a directory, newest first.
std::vector<std::string> folders_in(const std::string& directory);

/// Makes room for a run that does not continue from all of a directory's checkpoints. It renames
/// those of step `from` and later into `directory`/previous-1, or the first free number. The file
/// `latest` moves too, unless it names a checkpoint that stays. Nothing is removed. Returns that
/// folder, or "" if there was nothing to move. UsageError if the folder cannot be created or a
/// rename fails.
std::string move_aside(const std::string& directory, std::int64_t from);

}  // namespace trireme::checkpoint
