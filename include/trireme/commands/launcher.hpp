#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trireme::commands {

/// A launcher whose environment variables indicate that this process is one of several.
struct Launch {
  std::string launcher;    ///< name: "Slurm's srun"
  std::int64_t ranks = 0;  ///< number of its processes
  bool at_least = false;   ///< `ranks` is a lower bound: the exact number is unknown
  bool reports = false;    ///< this process prints the error
  std::string remedy;      ///< command that starts ranks of this MPI; "": unknown
};

/// Returns the value of an environment variable; null if the variable is not set.
using Environment = std::function<const char*(const char*)>;

/// Name and version in the MPI library's description `mpi`: "MPICH 4.0.2", "Open MPI v4.1.4"; "this
/// MPI" if the description is empty.
std::string short_mpi_name(std::string mpi);

/// The launcher that started this process as one of several, if any. An inner launcher takes
/// precedence over an outer one. `mpi`: the MPI library's description, for the remedy.
std::optional<Launch> launched_with_others(const Environment& environment, const std::string& mpi);

/// The two parts of the error about a launch whose processes are separate jobs of one rank.
std::string launch_mismatch(const Launch& launch, const std::string& mpi);
std::string launch_remedy(const Launch& launch, const std::string& mpi);

/// Whether this process must end, because another MPI's launcher has started it as one of several
/// processes, each of which would train alone; one of them prints the error. `ranks`: ranks of MPI.
bool is_started_by_another_mpi(int ranks, const std::string& mpi);

}  // namespace trireme::commands
