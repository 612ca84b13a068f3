#pragma once

#include <trireme/base/owner_file.hpp>
#include <trireme/base/types.hpp>

#include <functional>
#include <memory>
#include <string>

namespace trireme {

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

/// The folders that this process owns, for the job's other processes: know_owned_folders takes
/// them.
std::string owned_folders();
void know_owned_folders(const std::string& owned);
/// Releases all folders that this process owns or knows, for an end of the job without destructors.
void release_owned_folders();

}  // namespace trireme
