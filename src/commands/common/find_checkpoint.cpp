#include <trireme/commands/find_checkpoint.hpp>

#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/lineage.hpp>
#include <trireme/checkpoint/reader.hpp>

#include <filesystem>
#include <optional>

namespace trireme::commands {
namespace {

/// Expects a folder with a manifest; otherwise the error names the newest existing checkpoint.
void expect_checkpoint(const std::string& folder, const std::string& directory) {
  std::error_code ignored;
  const bool exists = std::filesystem::is_directory(folder, ignored);
  if (exists && std::filesystem::exists(folder + "/" + checkpoint::manifest_name, ignored)) return;
  auto inside = exists ? checkpoint::latest(folder) : std::nullopt;
  if (exists && !inside) inside = checkpoint::latest(folder + "/checkpoints");
  const std::string word =
      exists || folder.find('/') != std::string::npos ? "" : nearest(folder, {"none", "latest"});
  const auto newest = inside ? inside : checkpoint::latest(directory);
  std::string remedy = newest ? "give " + *newest : "copy it again, or train first";
  if (newest && exists && !inside) remedy = "copy it again, or " + remedy;
  if (!word.empty()) remedy = text("did you mean ", word, "?");
  throw UsageError(text(folder,
                        exists ? " is not a complete checkpoint, because it has no manifest.json; "
                               : ": no such checkpoint folder; ",
                        remedy));
}

/// UsageError for random initial weights although there is an imported model: the restart was
/// probably forgotten.
void expect_no_import(const deck::Deck& deck) {
  const std::string& directory = deck.config.checkpoint.directory;
  const auto members = checkpoint::members_of(directory);
  check_usage(members.size() != 1 || members.front().lineage.step > 0 ||
                  !members.front().lineage.starts.empty(),
              deck.cite("checkpoint", "restart"), " trains random weights, but ", directory, "/",
              checkpoint::folder_name(0),
              " holds imported ones; train them with checkpoint.restart=latest, or choose another "
              "run.directory");
}

}  // namespace

std::string find_checkpoint(const deck::Deck& deck, const std::string& where) {
  if (where != "latest") {
    expect_checkpoint(where, deck.config.checkpoint.directory);
    return where.substr(0, where.find_last_not_of('/') + 1);
  }
  const std::string& directory = deck.config.checkpoint.directory;
  const auto folder = checkpoint::latest(directory);
  check_usage(folder.has_value(), "there is no complete checkpoint in ", directory,
              "; train first, or give a checkpoint's folder");
  return *folder;
}

void expect_restart(const deck::Deck& deck) {
  const std::string& restart = deck.config.checkpoint.restart;
  if (restart == "none")
    expect_no_import(deck);
  else if (restart != "latest")
    find_checkpoint(deck, restart);
}

}  // namespace trireme::commands
