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
  std::string check;   ///< "open files"
  std::string value;   ///< what was found
  std::string advice;  ///< remedy; empty if the value is fine
};

/// Positions of the '1's: "0-3,8".
std::string core_list(const std::string& cores);

/// Findings about the ranks' facts, in the order of the report.
std::vector<Finding> diagnose(const std::vector<RankFacts>& ranks, const std::string& folder);

/// Prints the findings, or writes them as JSON, and returns the exit code.
ExitCode report_findings(const std::vector<Finding>& findings, std::size_t ranks,
                         const DoctorOptions& options);

/// Reports a node on which the engine cannot start, with the reason. Without MPI, only the first
/// process prints.
ExitCode report_no_start(int argc, const char* const* argv, const std::string& check,
                         const std::string& reason);

}  // namespace trireme::commands
