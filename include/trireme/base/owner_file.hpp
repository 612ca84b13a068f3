#pragma once

/// The operations on owner files of which folder_owner.cpp builds ownership.
#include <trireme/base/process.hpp>
#include <trireme/base/types.hpp>

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace trireme {

/// Closes a file's descriptor.
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

/// An owner file as it is now. Opening it makes NFS fetch its attributes.
struct OwnerFile {
  std::string content;
  std::int64_t heartbeat = 0;  ///< nanoseconds, by the file system's clock
  bool locked = false;
  dev_t device = 0;
  ino_t number = 0;
};

/// Nothing, with an error number, if the file cannot be opened.
std::optional<OwnerFile> look_at_owner(const std::string& path, int& error);
/// Nothing if there is no such file; UsageError if it cannot be read.
std::optional<OwnerFile> look_at_owner(const std::string& path);
/// Whether an error number says that there is no such file.
bool is_absent(int error);

/// Creates a file, which must not exist, and flushes it.
void write_owner(const std::string& path, const std::string& content);
/// Creates `target` with the content of `source`. False if it exists.
bool publish_owner(const std::string& source, const std::string& target,
                   const std::string& content);
/// Removes an owner file with this content and no other.
void remove_owner(const std::string& path, const std::string& content);

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
