#pragma once

namespace trireme::commands {

/// Whether this process is to print: not where a launcher's environment (mpiexec, srun, PALS) says
/// that it is another rank than 0. Commands without MPI know nothing else of their neighbours.
bool is_first_process();

}  // namespace trireme::commands
