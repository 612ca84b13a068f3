// Tables of `trireme help`: exit codes and environment variables; and the text of --version.
#include <trireme/commands/commit.hpp>  // made by the build
#include <trireme/commands/host.hpp>
#include <trireme/installation/this_installation.hpp>

#include <algorithm>
#include <string_view>
#include <vector>

namespace trireme::commands {
namespace {

std::string table(std::string_view heading, const std::vector<HelpRow>& rows) {
  std::size_t widest = 0;
  for (const HelpRow& row : rows) widest = std::max(widest, row.name.size());
  std::string out = text(heading, "\n\n");
  for (const HelpRow& row : rows)
    out += text("  ", row.name, std::string(widest - row.name.size() + 2, ' '), row.meaning, "\n");
  return out;
}

}  // namespace

std::vector<HelpRow> exit_codes() {
  return {{"0", "finished"},
          {"1", "failed: a device, a full disk, damaged data, a loss that is not finite"},
          {"2", "a mistake on the command line, in a deck or in an input file"},
          {"3", "trireme check --must-fit: a rank needs more memory than it has"},
          {"75",
           "train stopped early with a checkpoint, after a signal, the time limit or "
           "a stop file; start the same command again with checkpoint.restart=latest"},
          {"76", "train stopped because an audit found wrong numbers (run.audit_every)"}};
}

std::string exit_codes_text() {
  return table("Exit codes of trireme; an error is printed once on standard error.", exit_codes());
}

std::string environment_text() {
  return table(
      "Environment variables that trireme reads.",
      {{"TRIREME_PROGRESS",
        "rewrite: progress lines replace one another; lines: each stays. "
        "Default: rewrite if the output is a terminal, also through mpiexec"},
       {"TRIREME_END_SECONDS", "longest time for MPI_Finalize at the end of a job, in seconds"},
       {"TRIREME_NODE_NAME", "name of this node, where the host name does not tell nodes apart"},
       {"NO_COLOR", "if set and not empty, no colours in messages"},
       {"TERM", "dumb: no colours, and progress lines do not replace one another"},
       {"COLUMNS", "width of help texts; default: that of the terminal, or 80"},
       {"LD_LIBRARY_PATH", "folders in which NCCL is looked for when a job starts"},
       {"OMP_NUM_THREADS",
        "threads of each rank, in builds with Kokkos' OpenMP back end; default: "
        "the cores to which the rank is bound"},
       {"KOKKOS_NUM_THREADS", "the same, read by Kokkos"},
       {"KOKKOS_TOOLS_LIBS",
        "library of a profiling tool, read by Kokkos 4 and newer; Kokkos 3 "
        "reads KOKKOS_PROFILE_LIBRARY"},
       {"SLURM_JOB_ID",
        "batch job of the run, for its report; likewise PBS_JOBID, FLUX_JOB_ID, "
        "LSB_JOBID and COBALT_JOBID"},
       {"SLURM_RESTART_COUNT",
        "tells a requeued job from its former one, which owned the run's "
        "folders"},
       {"SLURM_NTASKS", "tasks of the job, with which trireme doctor compares the ranks of MPI"},
       {"SLURM_STEP_ID", "tells doctor that srun, and not a batch script, has started it"},
       {"SLURMD_NODENAME", "name of the node in reports of audits"},
       {"HOME", "home folder, which errors about a path with ~ name"},
       {"PMI_RANK",
        "rank of a process, by which commands without MPI print once; likewise "
        "OMPI_COMM_WORLD_RANK, PMIX_RANK, PALS_RANKID and SLURM_PROCID"}});
}

std::string version_text() {
  const std::string_view commit = TRIREME_COMMIT, mpi = TRIREME_MPI_VERSION,
                         onednn = TRIREME_ONEDNN_VERSION;
  const plan::Machine machine = installation::this_machine();
  return text("trireme ", TRIREME_VERSION, commit.empty() ? "" : text(" (", commit, ")"),
              "\nKokkos ", TRIREME_KOKKOS_VERSION, "\nMPI ", mpi, "\nHDF5 ", TRIREME_HDF5_VERSION,
              "\noneDNN ", onednn.empty() ? "none" : onednn, "\nproducts ",
              name_of(machine.software.products), ", attention ",
              name_of(machine.software.attention), ", transport ",
              name_of(machine.software.transport));
}

}  // namespace trireme::commands
