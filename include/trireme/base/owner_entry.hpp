#pragma once

#include <trireme/base/process_identity.hpp>
#include <trireme/base/types.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

/// Seconds between two heartbeats.
inline constexpr Seconds heartbeat_seconds = 10;
/// Heartbeats that are this old have been missed.
inline constexpr Seconds heartbeat_missed_seconds = 3 * heartbeat_seconds;

/// The job that may write to a folder: the content of the folder's file `owner`. The time of the
/// file's last modification is the owner's heartbeat.
struct OwnerEntry {
  ProcessIdentity process;      ///< of rank 0
  std::string job;              ///< the batch system's id; "": none
  std::string part;             ///< number of the job's restart, where the batch system has one
  Seconds heartbeat_limit = 0;  ///< an older heartbeat means that the owner is dead
  std::string begun;            ///< UTC
  std::string nonce;            ///< makes every content unique

  /// "process 4242 on node17, job 41873"
  std::string description() const;
};

std::string to_text(const OwnerEntry& entry);
/// The inverse; nothing for a content that is not whole.
std::optional<OwnerEntry> parse_owner(const std::string& content);

/// Judgement of an owner by a job that wants its folder.
struct OwnerJudgement {
  enum class Verdict : std::uint8_t { alive, dead, unclear };
  Verdict verdict = Verdict::alive;
  std::string reason;  ///< why it is dead
};

/// `age`: seconds since the owner's last heartbeat, by the file system's clock. `before_boot`: that
/// heartbeat is older than this host's boot. `locked`: another process holds the file's lock.
OwnerJudgement judge(const OwnerEntry& owner, const OwnerEntry& mine, Seconds age, bool before_boot,
                     bool locked);

}  // namespace trireme
