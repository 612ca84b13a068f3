#pragma once

#include <trireme/base/process_identity.hpp>
#include <trireme/base/types.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace trireme {

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

/// Seconds between two heartbeats.
inline constexpr Seconds heartbeat_seconds = 10;
/// Heartbeats that are this old have been missed.
inline constexpr Seconds heartbeat_missed_seconds = 3 * heartbeat_seconds;

/// Ownership of a folder from construction to destruction, renewed by a thread. Of several
/// processes on any hosts that share the folder, one is the owner. Needs a file system with hard
/// links or exclusive creation (NFS, Lustre, GPFS). A file lock is held in addition where the file
/// system has one.
class FolderOwner {
 public:
  /// Takes the folder, also from an owner that has died. `what` names the folder in errors, for
  /// example its deck key. UsageError if another job that lives owns it. An owner on another host
  /// whose heartbeat is late, but not yet too old, is waited for; `waiting` is then called once.
  /// `watchdog`: limit of the heartbeat's age, at least a minute; 0: 10 minutes.
  FolderOwner(const std::string& folder, const std::string& what, Seconds watchdog,
              const std::function<void(const std::string&)>& waiting = {});
  /// Releases the folder.
  ~FolderOwner();
  FolderOwner(const FolderOwner&) = delete;
  FolderOwner& operator=(const FolderOwner&) = delete;

  /// The dead owner before this one, and why it is dead: "process …, which … (…)"; "" if the folder
  /// was free.
  const std::string& former() const;
  /// Error if the folder was removed or renamed, or belongs to another job by now.
  void expect_mine() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What this process owns, for other processes of the job; they pass it to know_owned_folders.
std::string owned_folders();
void know_owned_folders(const std::string& owned);
/// Releases all folders that this process owns or knows, for an end of the job without destructors.
void release_owned_folders();

}  // namespace trireme
