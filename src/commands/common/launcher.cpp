#include <trireme/commands/launcher.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace trireme::commands {

bool is_first_process() {
  // Hydra (MPICH, Intel MPI) and Cray's PMI, Open MPI, PMIx, PALS, Slurm.
  constexpr std::array names{"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PALS_RANKID",
                             "SLURM_PROCID"};
  return std::ranges::none_of(names, [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && std::string_view(value).find_first_of("123456789") == 0;
  });
}

}  // namespace trireme::commands
