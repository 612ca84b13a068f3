#pragma once

#include <trireme/base/check.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace trireme::data {
struct TokenizeOptions;
}

/// The commands of the host-only program `trireme`, and its help topics. Each add function adds one
/// subcommand, whose callback does the work and throws trireme::Error on failure.
namespace trireme::commands {

void add_check(CLI::App& app);
void add_completion(CLI::App& app);
void add_draw(CLI::App& app);
void add_export(CLI::App& app);
void add_help(CLI::App& app);
void add_import(CLI::App& app);
void add_init(CLI::App& app);
void add_inspect(CLI::App& app);
void add_plan(CLI::App& app);
void add_predict(CLI::App& app);
void add_report(CLI::App& app);
void add_tokenize(CLI::App& app);

/// Tokenizes, shows the progress and prints a summary of the output. `json`: file for the summary
/// as JSON, "-" to print only the JSON, or "" for none.
void tokenize_and_report(const data::TokenizeOptions& options, const std::string& json);

/// Exit code of `trireme check --must-fit` for a plan that does not fit into the memory.
inline constexpr ExitCode exit_code_of_no_fit = static_cast<ExitCode>(3);

/// A row of a table of `trireme help`.
struct HelpRow {
  std::string_view name;
  std::string_view meaning;
};
std::vector<HelpRow> exit_codes();

/// Texts of `trireme help exit-codes` and `trireme help environment`.
std::string exit_codes_text();
std::string environment_text();

/// The version with its commit, and the libraries and back ends of the build.
std::string version_text();

}  // namespace trireme::commands
