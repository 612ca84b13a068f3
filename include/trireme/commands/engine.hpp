#pragma once

#include <trireme/base/check.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/grid/runtime.hpp>

/// The commands of trireme-engine. All ranks call a command with the same options.
namespace trireme::commands {

ExitCode train(grid::Runtime& runtime, const TrainOptions& options);
ExitCode evaluate(grid::Runtime& runtime, const EvalOptions& options);
ExitCode bench(grid::Runtime& runtime, const BenchOptions& options);
ExitCode doctor(grid::Runtime& runtime, const DoctorOptions& options);
ExitCode generate(grid::Runtime& runtime, const GenerateOptions& options);

}  // namespace trireme::commands
