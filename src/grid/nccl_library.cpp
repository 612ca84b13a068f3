#include <trireme/grid/nccl_library.hpp>

#include <trireme/base/text.hpp>

#if defined(TRIREME_HAS_NCCL)
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <type_traits>

namespace trireme::grid {
namespace {

#if defined(KOKKOS_ENABLE_HIP)
constexpr const char* product = "RCCL";
constexpr const char* soname = "librccl.so.1";
#else
constexpr const char* product = "NCCL";
constexpr const char* soname = "libnccl.so.2";
#endif

std::atomic<const NcclLibrary*> loaded{nullptr};

std::string version_text(int code) {
  // Since NCCL 2.9, the minor version has two digits: 21805 is 2.18.5; before, 2804 was 2.8.4.
  const int major = code < 10'000 ? code / 1000 : code / 10'000;
  const int minor = code < 10'000 ? code / 100 % 10 : code / 100 % 100;
  return text(product, " ", major, ".", minor, ".", code % 100);
}

std::string version_of(void* handle) {
  const auto get_version =
      reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(handle, "ncclGetVersion"));
  int code = 0;
  if (get_version == nullptr || get_version(&code) != ncclSuccess) return product;
  return version_text(code);
}

/// Calls visit(pointer, symbol) for every function of the library.
template <class Visit>
void for_functions(NcclLibrary& nccl, const Visit& visit) {
  visit(nccl.get_version, "ncclGetVersion");
  visit(nccl.get_error_string, "ncclGetErrorString");
  visit(nccl.get_last_error, "ncclGetLastError");
  visit(nccl.get_unique_id, "ncclGetUniqueId");
  visit(nccl.comm_init_rank, "ncclCommInitRank");
  visit(nccl.comm_destroy, "ncclCommDestroy");
  visit(nccl.comm_get_async_error, "ncclCommGetAsyncError");
  visit(nccl.group_start, "ncclGroupStart");
  visit(nccl.group_end, "ncclGroupEnd");
  visit(nccl.send, "ncclSend");
  visit(nccl.receive, "ncclRecv");
  visit(nccl.all_gather, "ncclAllGather");
  visit(nccl.broadcast, "ncclBroadcast");
}

}  // namespace

std::vector<std::string> nccl_names() {
  std::vector<std::string> names{soname};
#if defined(TRIREME_NCCL_LIBRARY)
  // The path is a string in the program instead of an RPATH: CMake edits RPATHs at installation,
  // site tools strip them, and error messages can show the string.
  names.emplace_back(TRIREME_NCCL_LIBRARY);
#endif
  return names;
}

NcclLibrary load_nccl_library(const std::vector<std::string>& names) {
  NcclLibrary nccl;
  LibraryWanted wanted;
  wanted.what = text(version_text(NCCL_VERSION_CODE), ", which this program was compiled for,");
  wanted.names = names;
  for_functions(nccl, [&](auto&, const char* symbol) { wanted.symbols.push_back(symbol); });
  wanted.version = version_of;
  wanted.remedy = text("add the folder of ", soname,
                       " to LD_LIBRARY_PATH on all ranks, or set [parallel] transport = \"mpi\"");
  const LoadedLibrary library = load_library(wanted);
  std::size_t next = 0;
  for_functions(nccl, [&](auto& function, const char*) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(library.addresses[next++]);
  });
  nccl.name = version_of(library.handle);
  nccl.path = library.path;
  return nccl;
}

const NcclLibrary& nccl_library() {
  static const NcclLibrary nccl = load_nccl_library(nccl_names());
  loaded = &nccl;
  return nccl;
}

const NcclLibrary* loaded_nccl_library() {
  return loaded;
}

}  // namespace trireme::grid
#endif
