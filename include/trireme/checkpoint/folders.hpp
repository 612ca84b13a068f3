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

/// 100 -> "step_00000100"
std::string folder_name(std::int64_t step);
/// The inverse; nothing for any other name.
std::optional<std::int64_t> step_of(const std::string& name);
/// Names of the finished checkpoints of a directory, newest first.
std::vector<std::string> folders_in(const std::string& directory);

/// Makes room for a run that does not go on from all of a directory's checkpoints: moves those of
/// step `from` and later, and the file `latest` unless it names one that stays, into
/// `directory`/previous-1 or the first number that is free, by renaming. Nothing is removed.
/// Returns that folder, "" where there was nothing to move. UsageError where that is not possible.
std::string move_aside(const std::string& directory, std::int64_t from);

}  // namespace trireme::checkpoint
