#pragma once

#include <trireme/grid/shared_library.hpp>
#include <trireme/tensor/views.hpp>  // for KOKKOS_ENABLE_HIP

#if defined(TRIREME_HAS_NCCL)
#if defined(KOKKOS_ENABLE_HIP)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif

#include <string>
#include <vector>

namespace trireme::grid {

/// Functions of NCCL, or of RCCL, from a library that is loaded at run time. Without the library,
/// the program starts, and can train on one rank or with MPI as the transport.
struct NcclLibrary {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;

  std::string name;  ///< name and version, such as "NCCL 2.28.3"
  std::string path;  ///< path of the library file
};

/// Names to try, in this order: the soname, and the file that CMake found, if any.
std::vector<std::string> nccl_names();

/// Loads the first usable library of `names`. Throws Error if there is none (see load_library).
NcclLibrary load_nccl_library(const std::vector<std::string>& names);

/// The process's library, which the first call loads. Throws Error if this fails.
const NcclLibrary& nccl_library();

/// The process's library if it is loaded, otherwise null.
const NcclLibrary* loaded_nccl_library();

}  // namespace trireme::grid
#endif
