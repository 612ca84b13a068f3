#pragma once

#include <trireme/base/owner_file.hpp>
#include <trireme/base/types.hpp>

#include <functional>
#include <memory>
#include <string>

namespace trireme {

/// Ownership of a folder from construction to destruction. A thread renews it by heartbeats. Of all
/// processes that share the folder, on any hosts, only one is the owner. Needs a file system with
/// hard links or exclusive creation (NFS, Lustre, GPFS). The owner also holds a file lock if the
/// file system supports locks.
class FolderOwner {
 public:
  /// Takes the folder if it has no owner or a dead owner. `what` names the folder in errors, for
  /// example by its deck key. UsageError if a live process owns the folder. While it is unclear
  /// whether the owner is alive, for example because the heartbeat of an owner on another host is
  /// late but within its limit, the constructor waits; it calls `waiting` once with a message.
  /// `watchdog`: age of this owner's heartbeat, in seconds, above which the owner counts as dead on
  /// other hosts; values below 60 count as 60; 0: 600.
  FolderOwner(const std::string& folder, const std::string& what, Seconds watchdog,
              const std::function<void(const std::string&)>& waiting = {});
  /// Releases the folder.
  ~FolderOwner();
  FolderOwner(const FolderOwner&) = delete;
  FolderOwner& operator=(const FolderOwner&) = delete;

  /// The dead previous owner, and the reason why it counts as dead: "process …, which has died
  /// (…)"; "" if the folder was free.
  const std::string& former() const;
  /// Error if the folder or its file `owner` was removed, if the folder was renamed, or if it now
  /// belongs to another job.
  void expect_mine() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Folders that this process owns, as text for know_owned_folders in the job's other processes.
std::string owned_folders();
/// Replaces the list of the folders that this process owns or knows. `owned`: result of
/// owned_folders().
void know_owned_folders(const std::string& owned);
/// Releases all folders that this process owns or knows, for exits that run no destructors.
void release_owned_folders();

}  // namespace trireme
