#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <string>

/// Facts that a rank of `trireme doctor` collects about itself, its node and the run's folder.
namespace trireme::commands {

/// A use of the run's folder that failed, with the reason; empty: it worked.
struct FolderFacts {
  std::string files;   ///< create, write, fsync, rename over
  std::string links;   ///< link(2), by which a job takes a folder
  std::string locks;   ///< fcntl and flock
  std::string hdf5;    ///< write and read of a small file
  std::string shared;  ///< files and locks of the first rank as this rank sees them
  Bytes free = 0;
};

/// Facts of one rank and its node. Limits are -1 where there is none.
struct RankFacts {
  std::string node;
  std::string cores;  ///< character i is '1' if core i may be used; empty: not known
  std::int64_t address_space = -1;
  std::int64_t core_file = -1;
  std::int64_t open_files = -1;
  std::int64_t stack = -1;
  Bytes node_memory = 0;
  Bytes memory_limit = -1;   ///< of its control group
  Bytes shared_memory = -1;  ///< size of /dev/shm
  std::string core_pattern;  ///< "|…" passes core files to a program
  double clock = 0;          ///< seconds since 1970
  double built = 0;          ///< when the program was built
  double clock_offset = 0;   ///< against the first rank, in seconds
  std::string hdf5_headers;  ///< version
  std::string hdf5_library;
  std::string device;     ///< its name; empty: kernels run on the host
  std::string device_id;  ///< equal for ranks that share a device
  Bytes device_memory = 0;
  Bytes device_free = 0;
  std::string nccl;        ///< version and path; empty: not part of this build
  std::string nccl_error;  ///< why it cannot be loaded
  FolderFacts folder;
};

/// The facts of this process that need neither MPI nor a device, with those of the run's folder.
RankFacts facts_of_process(const std::string& folder);

/// One text for the way between ranks.
std::string packed(const RankFacts& facts);
RankFacts unpacked_facts(const std::string& text);

/// The smallest memory limit of a process whose /proc/self/cgroup holds `groups`, in the control
/// groups mounted at `root`; -1 without one.
Bytes group_memory_limit(const std::string& groups, const std::string& root);

}  // namespace trireme::commands
