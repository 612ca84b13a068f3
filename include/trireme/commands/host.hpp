#pragma once

#include <CLI/CLI.hpp>

/// The commands of the host-only program `trireme`. Each function adds one subcommand. Its callback
/// does the work and throws trireme::Error on failure.
namespace trireme::commands {

void add_check(CLI::App& app);
void add_completion(CLI::App& app);
void add_draw(CLI::App& app);
void add_export(CLI::App& app);
void add_help(CLI::App& app);
void add_import(CLI::App& app);
void add_inspect(CLI::App& app);
void add_plan(CLI::App& app);
void add_predict(CLI::App& app);
void add_report(CLI::App& app);
void add_tokenize(CLI::App& app);

}  // namespace trireme::commands
