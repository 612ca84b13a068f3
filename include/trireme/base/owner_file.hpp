#pragma once

/// Operations on files that record the owner of a folder; folder_owner.cpp uses them.
#include <trireme/base/process.hpp>
#include <trireme/base/types.hpp>

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace trireme {

/// Owns a file descriptor, and closes it.
class OwnerDescriptor {
 public:
  explicit OwnerDescriptor(int number = -1) : number_(number) {}
  ~OwnerDescriptor();
  OwnerDescriptor(OwnerDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  OwnerDescriptor& operator=(OwnerDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int get() const { return number_; }

 private:
  int number_;
};

/// State of an owner file, read from the open file, because NFS fetches current attributes on open.
struct OwnerFile {
  std::string content;
  std::int64_t heartbeat = 0;  ///< last modification by the file system's clock, in ns since 1970
  bool locked = false;
  dev_t device = 0;
  ino_t number = 0;
};

/// Reads an owner file. std::nullopt and an error number in `error` if it cannot be opened.
std::optional<OwnerFile> look_at_owner(const std::string& path, int& error);
/// Reads the state of an owner file. std::nullopt if the file does not exist; UsageError if it
/// cannot be opened for another reason.
std::optional<OwnerFile> look_at_owner(const std::string& path);
/// Whether an error number means that the file does not exist.
bool is_absent(int error);

/// Creates a file, which must not exist yet, writes `content` and flushes it. UsageError if the
/// file cannot be created or written; Error if the disk is full or the quota is exceeded.
void write_owner(const std::string& path, const std::string& content);
/// Creates `target` with the content of `source`, which is `content`. Returns false if `target`
/// exists; UsageError if `target` cannot be created for another reason.
bool publish_owner(const std::string& source, const std::string& target,
                   const std::string& content);
/// Removes the owner file if its content is `content`. UsageError if it cannot be read.
void remove_owner(const std::string& path, const std::string& content);

/// Seconds between two heartbeats.
inline constexpr Seconds heartbeat_seconds = 10;
/// Age of the last heartbeat, in seconds, above which it counts as late.
inline constexpr Seconds heartbeat_missed_seconds = 3 * heartbeat_seconds;

/// Content of a folder's file `owner`: the job that may write to the folder.
struct OwnerEntry {
  ProcessIdentity process;      ///< identity of rank 0
  std::string job;              ///< the batch system's job id; "": none
  std::string part;             ///< SLURM_RESTART_COUNT; "0" if it is not set
  Seconds heartbeat_limit = 0;  ///< largest age of the owner's last heartbeat, in seconds
  std::string begun;            ///< time at which this entry was made, UTC
  std::string nonce;            ///< makes every content unique

  /// Text for messages, such as "process 4242 on node17, job 41873".
  std::string description() const;
};

std::string to_text(const OwnerEntry& entry);
/// Inverse of to_text; std::nullopt for incomplete or invalid content.
std::optional<OwnerEntry> parse_owner(const std::string& content);

/// Judgement of a folder's owner by a job that wants the folder.
struct OwnerJudgement {
  enum class Verdict : std::uint8_t { alive, dead, unclear };
  Verdict verdict = Verdict::alive;
  std::string reason;  ///< reason why the owner is dead; "" for other verdicts
};

/// Judges the owner of a folder that the job `mine` wants. `age`: seconds since the owner's last
/// heartbeat, by the file system's clock. `before_boot`: the last heartbeat is older than this
/// host's boot. `locked`: another process holds the lock of the owner file.
OwnerJudgement judge(const OwnerEntry& owner, const OwnerEntry& mine, Seconds age, bool before_boot,
                     bool locked);

}  // namespace trireme
