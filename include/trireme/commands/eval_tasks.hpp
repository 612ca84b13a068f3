#pragma once

#include <trireme/commands/options.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/grid/runtime.hpp>

#include <nlohmann/json_fwd.hpp>

namespace trireme::commands {

/// Scores the tasks of `trireme eval --tasks` with the session's ranks, prints their measures and
/// writes the output files. Returns the measures as --output has them. Collective.
nlohmann::ordered_json evaluate_tasks(grid::Runtime& runtime, Session& session,
                                      const EvalOptions& options);

}  // namespace trireme::commands
