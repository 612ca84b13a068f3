#pragma once

/// Operations on owner files, from which folder_owner.cpp builds ownership.
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

/// State of an owner file. Opening the file makes NFS fetch its attributes.
struct OwnerFile {
  std::string content;
  std::int64_t heartbeat = 0;  ///< nanoseconds, by the file system's clock
  bool locked = false;
  dev_t device = 0;
  ino_t number = 0;
};

/// std::nullopt, with the error number in `error`, if the file cannot be opened.
std::optional<OwnerFile> look_at_owner(const std::string& path, int& error);
/// std::nullopt if the file does not exist; UsageError if it cannot be read.
std::optional<OwnerFile> look_at_owner(const std::string& path);
/// Whether an error number means that the file does not exist.
bool is_absent(int error);

/// Creates a file, which must not exist yet, and flushes it.
void write_owner(const std::string& path, const std::string& content);
/// Creates `target` with the content of `source`. Returns false if `target` exists.
bool publish_owner(const std::string& source, const std::string& target,
                   const std::string& content);
/// Removes an owner file only if it has this content.
void remove_owner(const std::string& path, const std::string& content);

/// Seconds between two heartbeats.
inline constexpr Seconds heartbeat_seconds = 10;
/// A heartbeat is missed once it is this old, in seconds.
inline constexpr Seconds heartbeat_missed_seconds = 3 * heartbeat_seconds;

/// The job that may write to a folder: the content of the folder's file `owner`. The time of the
/// file's last modification is the owner's heartbeat.
struct OwnerEntry {
  ProcessIdentity process;      ///< identity of rank 0
  std::string job;              ///< the batch system's id; "": none
  std::string part;             ///< number of the job's restart, if the batch system has one
  Seconds heartbeat_limit = 0;  ///< an older heartbeat means that the owner is dead
  std::string begun;            ///< start time, UTC
  std::string nonce;            ///< makes every content unique

  /// "process 4242 on node17, job 41873"
  std::string description() const;
};

std::string to_text(const OwnerEntry& entry);
/// Inverse of to_text; std::nullopt for incomplete content.
std::optional<OwnerEntry> parse_owner(const std::string& content);

/// Judgement of an owner by a job that wants its folder.
struct OwnerJudgement {
  enum class Verdict : std::uint8_t { alive, dead, unclear };
  Verdict verdict = Verdict::alive;
  std::string reason;  ///< reason why the owner counts as dead
};

/// `age`: seconds since the owner's last heartbeat, by the file system's clock. `before_boot`: that
/// heartbeat is older than this host's boot. `locked`: another process holds the file's lock.
OwnerJudgement judge(const OwnerEntry& owner, const OwnerEntry& mine, Seconds age, bool before_boot,
                     bool locked);

}  // namespace trireme
