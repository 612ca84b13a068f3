#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

/// Name of this host; "" if it cannot be determined.
std::string host_name();

/// Identity of a process, across hosts and reboots.
struct ProcessIdentity {
  std::string host;
  /// Digest of the host's boot and of the process-id namespace in which `process` is valid.
  std::string system;
  std::int64_t process = 0;
  std::int64_t started = 0;  ///< start time in clock ticks after the boot; 0: not known

  bool operator==(const ProcessIdentity&) const = default;
};

ProcessIdentity this_process();

enum class Life : std::uint8_t {
  alive,
  dead,
  not_known  ///< the process belongs to another host, boot or process-id namespace
};

/// Zombies, and processes whose id now belongs to another process, count as dead.
Life life_of(const ProcessIdentity& process);

/// Properties of a process of this host, read from /proc/PID/stat.
struct ProcessEntry {
  std::string name;
  char state = '?';  ///< 'T': stopped, 'Z': a zombie; '?': there is no such process, or it ended
  std::int64_t parent = 0;
  std::int64_t started = 0;  ///< start time in clock ticks after the boot
};
ProcessEntry process_entry(std::int64_t process);

/// Job id from the batch system (Slurm, PBS, Flux, LSF or Cobalt), if there is one.
std::optional<std::string> batch_job();

/// Time at which this system was booted, in nanoseconds since 1970.
std::int64_t boot_time();

/// Peak resident host memory of this process so far; 0 where the system does not report it.
Bytes peak_resident_bytes();

}  // namespace trireme
