#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <string>

/// Facts that a rank of `trireme doctor` collects about itself, its node and the run's folder.
namespace trireme::commands {

/// Results of using the run's folder: the reason for each failure; empty if it worked.
struct FolderFacts {
  std::string files;   ///< create, write, fsync, rename over a file
  std::string links;   ///< link(2), with which a job takes a folder
  std::string locks;   ///< fcntl and flock
  std::string hdf5;    ///< writing and reading a small file
  std::string shared;  ///< whether this rank sees files and locks of the first rank
  Bytes free = 0;
};

/// Facts of one rank and its node. Limits are -1 if there is none.
struct RankFacts {
  std::string node;
  std::string cores;  ///< character i is '1' if core i may be used; empty: unknown
  std::int64_t address_space = -1;
  std::int64_t core_file = -1;
  std::int64_t open_files = -1;
  std::int64_t stack = -1;
  Bytes node_memory = 0;
  Bytes memory_limit = -1;   ///< limit of its control group
  Bytes shared_memory = -1;  ///< size of /dev/shm
  std::string core_pattern;  ///< "|…" passes core files to a program
  double clock = 0;          ///< seconds since 1970
  double built = 0;          ///< time of the build, in seconds since 1970
  double clock_offset = 0;   ///< clock minus the first rank's clock, in seconds
  std::string hdf5_headers;  ///< version
  std::string hdf5_library;
  std::string device;     ///< device name; empty: kernels run on the host
  std::string device_id;  ///< equal for ranks that share a device
  Bytes device_memory = 0;
  Bytes device_free = 0;
  std::string nccl;        ///< version and path; empty: not part of this build
  std::string nccl_error;  ///< reason why it cannot be loaded
  FolderFacts folder;
};

/// Facts of this process that need neither MPI nor a device, including the run's folder.
RankFacts facts_of_process(const std::string& folder);

/// Facts as one text for messages between ranks, and back.
std::string packed(const RankFacts& facts);
RankFacts unpacked_facts(const std::string& text);

/// Smallest memory limit of a process whose /proc/self/cgroup contains `groups`, in the control
/// groups mounted at `root`; -1 if there is none.
Bytes group_memory_limit(const std::string& groups, const std::string& root);

}  // namespace trireme::commands
