#pragma once

#include <trireme/base/check.hpp>
#include <trireme/commands/doctor_facts.hpp>
#include <trireme/commands/options.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// `trireme doctor`: the first rank turns the facts of all ranks into findings, one line each.
namespace trireme::commands {

enum class Health : std::uint8_t { ok, warning, failure };

struct Finding {
  Health health = Health::ok;
  std::string check;   ///< name of the check: "open files"
  std::string value;   ///< state that was found
  std::string advice;  ///< remedy; "": none
};

/// Numbers of the cores that RankFacts::cores marks with '1': "0-3,8".
std::string core_list(const std::string& cores);

/// Findings about the ranks' facts, in the order of the report.
std::vector<Finding> diagnose(const std::vector<RankFacts>& ranks, const std::string& folder);

/// Writes the findings as JSON if options.json is set, and prints them unless options.json is "-".
/// Returns ExitCode::failed if there is a failure, otherwise ExitCode::finished.
ExitCode report_findings(const std::vector<Finding>& findings, std::size_t ranks,
                         const DoctorOptions& options);

/// Reports that the engine cannot start: a failure of `check` with the reason, and the findings of
/// this process. Only the first process prints (is_first_process). Returns ExitCode::failed, or
/// ExitCode::finished after --help.
ExitCode report_no_start(int argc, const char* const* argv, const std::string& check,
                         const std::string& reason);

}  // namespace trireme::commands
