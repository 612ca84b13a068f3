// Recognises the launcher of a process by environment variables.
#include <trireme/commands/launcher.hpp>

#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

namespace trireme::commands {
namespace {

/// Slurm's step ids from this value on do not belong to an srun, but to the batch script or an
/// interactive shell.
constexpr std::int64_t first_special_step = 0xFFFFFFF0;

/// The environment variable `name` as a whole number of at least 0; otherwise std::nullopt.
std::optional<std::int64_t> number(const Environment& environment, const char* name) {
  const char* value = environment(name);
  if (value == nullptr || *value < '0' || *value > '9') return std::nullopt;
  char* end = nullptr;
  const std::int64_t found = std::strtoll(value, &end, 10);
  return *end == '\0' ? std::optional(found) : std::nullopt;
}

/// Number of processes and this process's rank, if a launcher's variables give them.
struct Evidence {
  const char* launcher;
  std::optional<std::int64_t> size;
  std::optional<std::int64_t> rank;
  std::string remedy = {};
  bool of_a_node = false;  ///< the size does not count the processes of other nodes

  bool any() const { return size || rank; }
  std::int64_t least() const { return std::max(size.value_or(1), rank.value_or(0) + 1); }
};

bool is_open_mpi(const std::string& mpi) {
  return mpi.find("Open MPI") != std::string::npos;
}

Evidence slurm(const Environment& environment, const std::string& mpi) {
  Evidence found{"Slurm's srun", {}, {}};
  // In a batch script SLURM_NTASKS and SLURM_PROCID describe the allocation.
  const auto step = number(environment, "SLURM_STEP_ID");
  if (!step || *step >= first_special_step) return found;
  found.size = number(environment, "SLURM_STEP_NUM_TASKS");
  if (!found.size) found.size = number(environment, "SLURM_NTASKS");
  found.rank = number(environment, "SLURM_PROCID");
  found.remedy = text("`srun --mpi=", is_open_mpi(mpi) ? "pmix" : "pmi2",
                      "` (`srun --mpi=list` shows the types that this cluster has)");
  return found;
}

Evidence flux(const Environment& environment, const std::string& mpi) {
  Evidence found{"Flux", {}, number(environment, "FLUX_TASK_RANK")};
  if (!found.rank) return found;  // a batch script is not a task
  found.size = number(environment, "FLUX_JOB_SIZE");
  found.remedy = text("`flux run -o pmi=", is_open_mpi(mpi) ? "pmix" : "simple", "`");
  return found;
}

Evidence pals(const Environment& environment) {
  Evidence found{"PALS' mpiexec", number(environment, "PALS_SIZE"),
                 number(environment, "PALS_RANKID")};
  if (!found.size) {
    found.size = number(environment, "PALS_LOCAL_SIZE");
    found.of_a_node = true;
  }
  found.remedy = "`mpiexec --pmi=cray` or `--pmi=pmix`";
  return found;
}

/// Groups of launchers, innermost first; launchers of one group may be nested in any order.
std::vector<std::vector<Evidence>> evidence(const Environment& environment,
                                            const std::string& mpi) {
  const Evidence open_mpi{"Open MPI's mpiexec", number(environment, "OMPI_COMM_WORLD_SIZE"),
                          number(environment, "OMPI_COMM_WORLD_RANK")};
  const Evidence pmi{"an mpiexec with PMI (MPICH, Intel MPI)", number(environment, "PMI_SIZE"),
                     number(environment, "PMI_RANK")};
  const Evidence pmix{"a launcher with PMIx", number(environment, "PMIX_SIZE"),
                      number(environment, "PMIX_RANK")};
  return {{open_mpi, pmi},
          {flux(environment, mpi)},
          {slurm(environment, mpi), pals(environment)},
          {pmix}};
}

}  // namespace

std::string short_mpi_name(std::string mpi) {
  mpi = mpi.substr(0, mpi.find(','));
  if (const auto at = mpi.find("Version:"); at != std::string::npos) {
    const auto number = mpi.find_first_not_of(" \t", at + 8);
    mpi = mpi.substr(0, at) + (number == std::string::npos ? "" : mpi.substr(number));
  }
  return mpi.empty() ? "this MPI" : mpi.substr(0, mpi.find_last_not_of(' ') + 1);
}

std::optional<Launch> launched_with_others(const Environment& environment, const std::string& mpi) {
  for (const auto& group : evidence(environment, mpi)) {
    const Evidence* fewest = nullptr;
    for (const Evidence& one : group)
      if (one.any() && (fewest == nullptr || one.least() < fewest->least())) fewest = &one;
    if (fewest == nullptr) continue;
    // If this is rank 0 of an unknown number, an outer launcher's variables may give the number.
    const bool known = fewest->size && !fewest->of_a_node;
    if (fewest->least() == 1 && !known) continue;
    if (fewest->least() == 1) return std::nullopt;
    const std::int64_t rank = fewest->rank.value_or(0);
    // Without a size, rank 0 does not know that it is one of several, so rank 1 reports.
    return Launch{fewest->launcher, fewest->least(), !known,
                  rank == (fewest->size.value_or(1) > 1 ? 0 : 1), fewest->remedy};
  }
  return std::nullopt;
}

std::string launch_mismatch(const Launch& launch, const std::string& mpi) {
  return text(launch.launcher, " started ", launch.at_least ? "at least " : "", launch.ranks,
              " processes, but for ", short_mpi_name(mpi), " each of them is a job of 1 rank");
}

std::string launch_remedy(const Launch& launch, const std::string& mpi) {
  return text("start them with ", launch.remedy.empty() ? "" : launch.remedy + ", or with ",
              "the mpiexec of ", short_mpi_name(mpi),
              " (`mpiexec -n 1` for a single process inside another launcher's job)");
}

bool is_started_by_another_mpi(int ranks, const std::string& mpi) {
  if (ranks > 1) return false;
  const auto launch = launched_with_others([](const char* name) { return std::getenv(name); }, mpi);
  if (!launch) return false;
  if (launch->reports) {
    log::set_speaking(true);
    log::error(launch_mismatch(*launch, mpi) + "; " + launch_remedy(*launch, mpi));
  }
  return true;
}

}  // namespace trireme::commands
