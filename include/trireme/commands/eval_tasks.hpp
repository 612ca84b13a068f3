#pragma once

#include <trireme/commands/options.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/grid/runtime.hpp>

namespace trireme::commands {

/// Scores the tasks of `trireme eval --tasks` with the session's ranks, prints their measures and
/// writes the output files. Collective.
void evaluate_tasks(grid::Runtime& runtime, Session& session, const EvalOptions& options);

}  // namespace trireme::commands
