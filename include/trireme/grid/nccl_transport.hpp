#pragma once

#include <trireme/grid/transport.hpp>

#include <memory>
#include <string>

namespace trireme::grid {

/// NCCL, or RCCL with HIP; built where it was found (TRIREME_NCCL). Every rank has a device of its
/// own.
bool has_nccl();
std::unique_ptr<Transport> make_nccl_transport(Communicator& communicator);
/// "NCCL 2.28.3"; empty where there is none.
std::string nccl_name();

}  // namespace trireme::grid
