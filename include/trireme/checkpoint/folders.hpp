#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

inline constexpr const char* partial_suffix = ".partial";
inline constexpr const char* latest_name = "latest";
inline constexpr const char* announcement_name = "latest.partial";
inline constexpr const char* deck_name = "deck.toml";
inline constexpr const char* manifest_name = "manifest.json";
inline constexpr const char* index_name = "index.h5";
inline constexpr const char* attempt_name = "attempt";  ///< file that contains the last Attempt

/// 100 -> "step_00000100"
std::string folder_name(std::int64_t step);
/// Inverse of folder_name; std::nullopt for any other name.
std::optional<std::int64_t> step_of(const std::string& name);
/// Names of the finished checkpoints in a directory, highest step first.
std::vector<std::string> folders_in(const std::string& directory);

/// The checkpoint's name in the file `latest`. If `latest` is a symbolic link to a folder, the name
/// of this folder, or the folder's whole path if it is not in `directory`. "" if there is no file
/// `latest`; Error if `latest` cannot be read.
std::string read_latest(const std::string& directory);
/// Replaces the file `latest`, also if it is a symbolic link.
void write_latest(const std::string& directory, const std::string& name);

/// Makes `latest` name the checkpoint from which a run continues, and calls withdraw(). If `latest`
/// cannot be read or written, the next checkpoint replaces it; Error only if `latest` is a folder.
void settle_latest(const std::string& directory, const std::string& name);

/// Before a complete checkpoint gets its final name, announce() writes this name and the content of
/// `latest` to the file `latest.partial`. withdraw() removes this file after `latest` was replaced.
/// The file remains if the run is killed in between.
void announce(const std::string& directory, const std::string& name);
void withdraw(const std::string& directory);
/// Name of the checkpoint that a killed run completed without naming it in `latest`. std::nullopt
/// if there is no such checkpoint, or if `latest` has changed since announce().
std::optional<std::string> announced(const std::string& directory);

/// Moves the checkpoints `names` into the new folder `directory`/previous-N with the first free N ≥
/// 1. The file `latest` moves too, unless it names a checkpoint that stays. Returns the new folder,
/// or "" if there was nothing to move. UsageError if the folder cannot be created or a rename
/// fails.
std::string move_aside(const std::string& directory, const std::vector<std::string>& names);

}  // namespace trireme::checkpoint
