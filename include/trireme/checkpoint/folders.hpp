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
inline constexpr const char* attempt_name = "attempt";  ///< names the run and its last start

/// 100 -> "step_00000100"
std::string folder_name(std::int64_t step);
/// Inverse of folder_name; std::nullopt for any other name.
std::optional<std::int64_t> step_of(const std::string& name);
/// Names of the finished checkpoints of a directory, newest first.
std::vector<std::string> folders_in(const std::string& directory);

/// The name in the file `latest`, or the name of its target if it is a symbolic link to a folder in
/// the same directory. "" if there is no such file; Error if it cannot be read.
std::string read_latest(const std::string& directory);
/// Replaces the file `latest`, also if it is a symbolic link.
void write_latest(const std::string& directory, const std::string& name);

/// Makes `latest` name the checkpoint from which a run continues, unless it already does.
void settle_latest(const std::string& directory, const std::string& name);

/// Before a finished checkpoint gets its name, announce() writes that name and the content of
/// `latest` to `latest.partial`. withdraw() removes this file once `latest` is replaced. It remains
/// if the run is killed in between.
void announce(const std::string& directory, const std::string& name);
void withdraw(const std::string& directory);
/// The checkpoint that a killed run completed without naming it in `latest`; std::nullopt if
/// `latest` has changed since then.
std::optional<std::string> announced(const std::string& directory);

/// Moves the checkpoints `names` aside for a run that does not continue from them, into
/// `directory`/previous-1, or the first free number. The file `latest` moves too, unless it names a
/// checkpoint that stays. Nothing is removed. Returns the new folder, or "" if there was nothing to
/// move. UsageError if the folder cannot be created or a rename fails.
std::string move_aside(const std::string& directory, const std::vector<std::string>& names);

}  // namespace trireme::checkpoint
