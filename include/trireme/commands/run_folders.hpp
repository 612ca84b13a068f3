#pragma once

#include <trireme/base/folder_owner.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/grid/runtime.hpp>

#include <memory>
#include <string>
#include <vector>

namespace trireme::commands {

/// The run's directory and its checkpoint directory, owned by this job until destruction.
class RunFolders {
 public:
  /// Creates the folders and takes ownership of them. UsageError if another job owns one of the
  /// folders, or if a folder is not writable. Collective.
  RunFolders(grid::Runtime& runtime, const deck::Deck& deck);
  ~RunFolders();
  RunFolders(const RunFolders&) = delete;
  RunFolders& operator=(const RunFolders&) = delete;

  /// On rank 0: the dead owner that this job has replaced; "" if there was none.
  std::string former() const;
  /// On rank 0: FolderOwner::expect_mine() of each folder.
  void expect_mine() const;

 private:
  std::vector<std::unique_ptr<FolderOwner>> owners_;
};

}  // namespace trireme::commands
