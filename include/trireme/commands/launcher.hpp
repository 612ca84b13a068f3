#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trireme::commands {

/// A launcher whose environment says that this process is one of several.
struct Launch {
  std::string launcher;    ///< "Slurm's srun"
  std::int64_t ranks = 0;  ///< number of its processes
  bool at_least = false;   ///< there may be more: the launcher only gives this process's rank
  bool reports = false;    ///< this process is the one that prints an error
  std::string remedy;      ///< a command that starts ranks of this MPI
};

/// The value of an environment variable, or null.
using Environment = std::function<const char*(const char*)>;

/// "MPICH 4.0.2", "Open MPI v4.1.4": without what else MPI libraries say of themselves.
std::string short_mpi_name(std::string mpi);

/// The launcher that started several processes, if one did. `mpi` is the MPI library's name, for
/// the remedy. Variables of Open MPI, PMI (MPICH, Intel MPI, Cray), Flux, Slurm, PALS and PMIx
/// count. An inner launcher prevails: one process that mpiexec starts within a job of several tasks
/// is alone, and so is a batch script within its allocation.
std::optional<Launch> launched_with_others(const Environment& environment, const std::string& mpi);

/// The two halves of the error about a launch whose processes are jobs of one rank each.
std::string launch_mismatch(const Launch& launch, const std::string& mpi);
std::string launch_remedy(const Launch& launch, const std::string& mpi);

/// Ends a process that a launcher of another MPI has started as one of several, each of which would
/// be an MPI job of its own and train alone. `ranks`: MPI's number of ranks. Returns whether the
/// process must end; one process prints the error.
bool is_started_by_another_mpi(int ranks, const std::string& mpi);

}  // namespace trireme::commands
