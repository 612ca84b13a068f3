#pragma once

#include <string>

namespace trireme::io {

/// A name for a temporary file or folder beside `path`: "PATH.partial-SYSTEM-PROCESS-N". It is
/// unique among all processes on all machines and identifies its owner.
std::string temporary_name(const std::string& path);

/// Removes temporary files and folders of dead processes from a folder. Temporaries of other
/// machines count as dead after a day without a change.
void remove_dead_temporaries(const std::string& folder);

/// Calls remove_dead_temporaries once per process and folder. Keeps partial checkpoints: the next
/// checkpoint removes them as a whole.
void remove_dead_temporaries_once(const std::string& folder);

/// Registers a temporary file or empty folder for removal on a signal
/// (remove_temporaries_on_signals). If too many are registered, this one stays after a signal.
void remember_temporary(const std::string& path);
void forget_temporary(const std::string& path);

}  // namespace trireme::io
