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
/// The inverse; no value for any other name.
std::optional<std::int64_t> step_of(const std::string& name);
/// Names of the finished checkpoints of a directory, newest first.
std::vector<std::string> folders_in(const std::string& directory);

/// The name in the file `latest`, or that of the folder if it is a symbolic link to one in the same
/// directory. "" without such a file; Error if it cannot be read.
std::string read_latest(const std::string& directory);
/// Replaces the file `latest`, also if it is a symbolic link.
void write_latest(const std::string& directory, const std::string& name);

/// Makes `latest` name the checkpoint from which a run continues, if it does not.
void settle_latest(const std::string& directory, const std::string& name);

/// Before a finished checkpoint gets its name, announce() notes that name and the content of
/// `latest` in `latest.partial`. withdraw() removes the note once `latest` is replaced. A run that
/// is killed in between leaves it.
void announce(const std::string& directory, const std::string& name);
void withdraw(const std::string& directory);
/// The checkpoint that a killed run completed without naming it in `latest`; no value if `latest`
/// was changed since then.
std::optional<std::string> announced(const std::string& directory);

/// Makes room for a run that does not continue from the checkpoints `names`. It renames them into
/// `directory`/previous-1, or the first free number. The file `latest` moves too, unless it names a
/// checkpoint that stays. Nothing is removed. Returns that folder, or "" if there was nothing to
/// move. UsageError if the folder cannot be created or a rename fails.
std::string move_aside(const std::string& directory, const std::vector<std::string>& names);

}  // namespace trireme::checkpoint
