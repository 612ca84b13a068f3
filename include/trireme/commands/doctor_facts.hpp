#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <string>

/// Facts that a rank of `trireme doctor` collects about itself, its node and the run's folder.
namespace trireme::commands {

/// Reasons why tests in the run's folder failed; "" for a test that passed or was not run.
struct FolderFacts {
  std::string files;   ///< create, write, fsync, rename over a file
  std::string links;   ///< link(2), with which a job takes ownership of a folder
  std::string locks;   ///< fcntl and flock
  std::string hdf5;    ///< writing and reading a small file
  std::string shared;  ///< reading files and locks of the first rank
  Bytes free = 0;
};

/// Facts of one rank and its node. A limit is −1 if there is none.
struct RankFacts {
  std::string node;
  std::string cores;  ///< character i is '1' if core i may be used; empty: unknown
  std::int64_t address_space = -1;
  std::int64_t core_file = -1;
  std::int64_t open_files = -1;
  std::int64_t stack = -1;
  Bytes node_memory = 0;
  Bytes memory_limit = -1;   ///< smallest limit of the process's control groups
  Bytes shared_memory = -1;  ///< size of /dev/shm; −1: unknown
  std::string core_pattern;  ///< the kernel's core_pattern
  double clock = 0;          ///< seconds since 1970
  double built = 0;          ///< modification time of the program, in seconds since 1970
  double clock_offset = 0;   ///< clock minus the first rank's clock, in seconds
  std::string hdf5_headers;  ///< version of the headers of the build
  std::string hdf5_library;
  std::string device;     ///< device name; empty: kernels run on the host
  std::string device_id;  ///< equal for ranks that share a device
  Bytes device_memory = 0;
  Bytes device_free = 0;
  std::string nccl;        ///< version and path; empty: not built in, or not loaded
  std::string nccl_error;  ///< reason why NCCL cannot be loaded; empty: none
  FolderFacts folder;
};

/// Facts of this process that need neither MPI nor a device, including the run's folder.
RankFacts facts_of_process(const std::string& folder);

/// Facts as text for messages between ranks, and the facts in such a text.
std::string packed(const RankFacts& facts);
RankFacts unpacked_facts(const std::string& text);

/// Smallest memory limit, in bytes, of the control groups in `groups`, the content of
/// /proc/self/cgroup, and of their parents; −1 if there is none. `root`: mount point of the groups.
Bytes group_memory_limit(const std::string& groups, const std::string& root);

}  // namespace trireme::commands
