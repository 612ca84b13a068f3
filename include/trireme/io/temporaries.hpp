#pragma once

#include <string>

namespace trireme::io {

/// A name for a temporary file or folder beside `path`: "PATH.partial-SYSTEM-PROCESS-N". It is
/// unique among all processes on all machines, and shows later processes whose it was.
std::string temporary_name(const std::string& path);

/// Removes temporary files and folders of dead processes from a folder. Those of other machines
/// count as dead after a day without a change.
void remove_dead_temporaries(const std::string& folder);

/// The same, once per process and folder. Partial checkpoints are left out: the next checkpoint
/// removes them as a whole.
void remove_dead_temporaries_once(const std::string& folder);

/// A temporary file or empty folder that a signal removes (remove_temporaries_on_signals). A path
/// that is not remembered, because there are too many, is only not removed on a signal.
void remember_temporary(const std::string& path);
void forget_temporary(const std::string& path);

}  // namespace trireme::io
