#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

/// Shell completions, man pages and schemas, generated from the commands' options and the key
/// tables.
namespace trireme::commands {

/// An option of a command for shell completion.
struct CompletedOption {
  /// Kind of the word after the option.
  enum class Argument { none, file, folder, word, text };
  std::vector<std::string> names;  ///< "-o", "--output"
  std::string help;
  Argument argument = Argument::none;
  std::vector<std::string> words = {};  ///< valid values, if known
};

struct CompletedCommand {
  /// Kind of the command's positional arguments.
  enum class Operands { deck_and_keys, path_and_keys, paths, words, none };
  std::string name;
  std::string help;
  Operands operands = Operands::paths;
  std::vector<std::string> words = {};  ///< valid operands
  std::vector<CompletedOption> options;
};

/// The commands of the program, in the order of `trireme --help`.
std::vector<CompletedCommand> completed_commands(const CLI::App& app);

/// The completion script for "bash", "zsh" or "fish".
std::string completion_script(const CLI::App& app, const std::string& shell);

/// A manual page in roff format: trireme(1) for "", trireme-deck(5) and trireme-machine(5) for
/// "deck" and "machine", trireme-train(1) for "train".
std::string man_page(const CLI::App& app, const std::string& topic);

/// Writes man pages, completion scripts and JSON Schemas to `folder`, an installation's share/.
void write_share(const CLI::App& app, const std::string& folder);

/// JSON Schema (draft 7) of decks or, unless `of_decks`, of machine files.
std::string key_schema(bool of_decks);

}  // namespace trireme::commands
