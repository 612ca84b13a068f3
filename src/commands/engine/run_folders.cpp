// The folders of a run, which rank 0 owns and any rank that ends the job can release.
#include <trireme/commands/run_folders.hpp>

#include <trireme/base/log.hpp>

#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

/// Creates the folder `directory` and returns whether it is new. UsageError if it is not writable.
bool open_directory(const deck::Deck& deck, const char* section, const std::string& directory) {
  std::error_code error;
  const bool made = fs::create_directories(directory, error);
  if (!error && ::access(directory.c_str(), W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  check_usage(!error, deck.cite(section, "directory"), ": cannot write there (", error.message(),
              "); choose a folder that can be written");
  return made;
}

std::unique_ptr<FolderOwner> owner_of(const deck::Deck& deck, const char* section,
                                      const std::string& directory) {
  const bool made = open_directory(deck, section, directory);
  try {
    return std::make_unique<FolderOwner>(directory, deck.cite(section, "directory"),
                                         deck.config.run.watchdog, [&](const std::string& owner) {
                                           say("waiting until it is known whether the owner of ",
                                               directory, " still runs: ", owner);
                                         });
  } catch (...) {
    std::error_code ignored;
    if (made) fs::remove(directory, ignored);  // fails unless it is empty
    throw;
  }
}

}  // namespace

RunFolders::RunFolders(grid::Runtime& runtime, const deck::Deck& deck) {
  const std::string& run = deck.config.run.directory;
  const std::string& checkpoints = deck.config.checkpoint.directory;
  runtime.together([&] {
    if (runtime.rank() != 0) return;
    const bool existed = fs::exists(run);
    owners_.push_back(owner_of(deck, "run", run));
    std::error_code missing;
    if (fs::equivalent(run, checkpoints, missing)) return;
    try {
      owners_.push_back(owner_of(deck, "checkpoint", checkpoints));
    } catch (...) {
      owners_.clear();
      std::error_code ignored;
      if (!existed) fs::remove(run, ignored);
      throw;
    }
  });
  const std::string owned = runtime.world().broadcast(owned_folders(), 0, "owned folders");
  if (runtime.rank() != 0) know_owned_folders(owned);
}

RunFolders::~RunFolders() {
  if (owners_.empty()) know_owned_folders("");
}

std::string RunFolders::former() const {
  for (const auto& owner : owners_)
    if (!owner->former().empty()) return owner->former();
  return "";
}

void RunFolders::expect_mine() const {
  for (const auto& owner : owners_) owner->expect_mine();
}

}  // namespace trireme::commands
