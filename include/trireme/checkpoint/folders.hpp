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
inline constexpr const char* attempt_name = "attempt";

/// 100 -> "step_00000100"
std::string folder_name(std::int64_t step);
/// Inverse of folder_name; std::nullopt for any other name.
std::optional<std::int64_t> step_of(const std::string& name);
/// Names of the finished checkpoints in a directory, highest step first.
std::vector<std::string> folders_in(const std::string& directory);

/// The name in the file `latest`; "" without this file. If `latest` is a symbolic link to a folder:
/// the folder's name, or its whole path if the folder is not in `directory`. Error if `latest`
/// cannot be read.
std::string read_latest(const std::string& directory);
/// Replaces the file or symbolic link `latest` with a file that contains `name`.
void write_latest(const std::string& directory, const std::string& name);

/// Writes `name`, the checkpoint from which a run continues, to the file `latest`, and calls
/// withdraw(). Error only if `latest` is a folder; the next checkpoint corrects other failures.
void settle_latest(const std::string& directory, const std::string& name);

/// Before a complete checkpoint gets its final name, announce() writes this name and the content of
/// `latest` to the file `latest.partial`. withdraw() removes this file after `latest` was replaced.
/// The file remains if the run is killed in between.
void announce(const std::string& directory, const std::string& name);
void withdraw(const std::string& directory);
/// Name of the checkpoint that a killed run completed without naming it in `latest`. std::nullopt
/// if there is no such checkpoint, or if `latest` has changed since announce().
std::optional<std::string> announced(const std::string& directory);

/// Moves the checkpoints `names`, and a file `latest` that names none of the other checkpoints,
/// into the new folder `directory`/previous-N with the first free N ≥ 1. Returns this folder, or ""
/// if there is nothing to move. UsageError if a step fails.
std::string move_aside(const std::string& directory, const std::vector<std::string>& names);

}  // namespace trireme::checkpoint
