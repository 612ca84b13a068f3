#pragma once

#include <cstdint>
#include <string>

namespace trireme::checkpoint {

/// Makes room for a run that does not go on from all of a directory's checkpoints: moves those of
/// step `from` and later, and the file `latest` unless it names one that stays, into
/// `directory`/previous-1 or the first number that is free, by renaming. Nothing is removed.
/// Returns that folder, "" where there was nothing to move. UsageError where that is not possible.
std::string move_aside(const std::string& directory, std::int64_t from);

}  // namespace trireme::checkpoint
