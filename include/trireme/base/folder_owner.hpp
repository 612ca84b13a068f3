#pragma once

#include <trireme/base/owner_file.hpp>
#include <trireme/base/types.hpp>

#include <functional>
#include <memory>
#include <string>

namespace trireme {

/// Ownership of a folder from construction to destruction, renewed by the heartbeats of a thread.
/// Only one process, on any host, is the owner of a folder. Needs a file system with hard links or
/// exclusive creation (NFS, Lustre, GPFS).
class FolderOwner {
 public:
  /// Takes the folder if it has no owner or a dead owner. UsageError if a live process owns the
  /// folder. While it is unclear whether the owner is alive, waits, and calls `waiting` once with a
  /// message. `what` names the folder in errors. `watchdog`: age of the heartbeat, in seconds,
  /// above which other hosts count this owner as dead; at least 60; 0: 600.
  FolderOwner(const std::string& folder, const std::string& what, Seconds watchdog,
              const std::function<void(const std::string&)>& waiting = {});
  /// Releases the folder.
  ~FolderOwner();
  FolderOwner(const FolderOwner&) = delete;
  FolderOwner& operator=(const FolderOwner&) = delete;

  /// The dead previous owner: "process …, which has died (…)"; "" if there was none.
  const std::string& former() const;
  /// Error if the folder or its owner file was removed or renamed, or if another job owns it.
  void expect_mine() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Folders that this process owns, as text for know_owned_folders in the job's other processes.
std::string owned_folders();
/// Replaces the list of known folders by the result of owned_folders() on another process.
void know_owned_folders(const std::string& owned);
/// Releases all folders that this process owns or knows, for exits that run no destructors.
void release_owned_folders();

}  // namespace trireme
