#pragma once

#include <trireme/grid/transport.hpp>

#include <memory>
#include <string>

namespace trireme::grid {

class Runtime;

/// Loads NCCL, or RCCL with HIP, where there are two ranks or more: if one rank cannot, all throw.
/// Before the first make_nccl_transport, which would leave the others waiting. Collective.
void load_nccl(Runtime& runtime);
/// By NCCL; built where its header was found (TRIREME_NCCL). Every rank has a device of its own.
std::unique_ptr<Transport> make_nccl_transport(Communicator& communicator);
/// "NCCL 2.28.3 (/usr/lib/libnccl.so.2)"; empty where it is not loaded.
std::string nccl_name();

}  // namespace trireme::grid
