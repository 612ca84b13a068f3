#pragma once

#include <string>

namespace trireme::io {

/// The temporary files that a signal has to remove. A path that finds no slot is merely not removed
/// then.
void remember_temporary(const std::string& path);
void forget_temporary(const std::string& path);

/// From now on SIGINT, SIGTERM and SIGHUP remove the temporary files of all AtomicFiles before they
/// end the process as they would have. For commands that have no orderly stop of their own.
void remove_temporaries_on_signals();

}  // namespace trireme::io
