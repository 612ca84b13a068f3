#pragma once

#include <trireme/base/owner_file.hpp>
#include <trireme/base/types.hpp>

#include <functional>
#include <memory>
#include <string>

namespace trireme {

/// Ownership of a folder from construction to destruction, renewed by a thread. Only one of the
/// processes that share the folder, on any hosts, is the owner. Needs a file system with hard links
/// or exclusive creation (NFS, Lustre, GPFS). The owner also holds a file lock where the file
/// system has locks.
class FolderOwner {
 public:
  /// Takes the folder, also from a dead owner. `what` names the folder in errors, for example its
  /// deck key. UsageError if another live job owns the folder. If the heartbeat of an owner on
  /// another host is late but within its limit, the constructor waits and calls `waiting` once.
  /// `watchdog`: limit of the heartbeat's age, at least a minute; 0: 10 minutes.
  FolderOwner(const std::string& folder, const std::string& what, Seconds watchdog,
              const std::function<void(const std::string&)>& waiting = {});
  /// Releases the folder.
  ~FolderOwner();
  FolderOwner(const FolderOwner&) = delete;
  FolderOwner& operator=(const FolderOwner&) = delete;

  /// The dead previous owner, and why it counts as dead: "process …, which … (…)"; "" if the folder
  /// was free.
  const std::string& former() const;
  /// Error if the folder was removed or renamed, or now belongs to another job.
  void expect_mine() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Folders that this process owns, as text for know_owned_folders in the job's other processes.
std::string owned_folders();
void know_owned_folders(const std::string& owned);
/// Releases all folders that this process owns or knows, for exits that run no destructors.
void release_owned_folders();

}  // namespace trireme
