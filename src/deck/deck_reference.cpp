#include <trireme/deck/deck.hpp>
#include <trireme/deck/key_file.hpp>

namespace trireme::deck {

std::string reference_text() {
  std::string out =
      "A deck is a TOML file. Each key belongs to a section:\n\n"
      "  [run]\n  steps = 1000\n\n"
      "and can be overridden on the command line: run.steps=1000 (strings need no quotes).\n";
  return out + key_text(deck_kind());
}

std::string reference_markdown() {
  std::string out =
      "# The deck\n\n"
      "A deck is a TOML file with all settings of a run. Each key is written as `key = value`\n"
      "in its section. The command line can override every key as `section.key=value`; strings\n"
      "need no quotes there:\n\n"
      "```\ntrireme check inputs/tiny.toml --ranks 4 run.steps=20 parallel.schedule=gpipe\n```\n\n"
      "All mistakes are reported at once, each with its file, line and column, and the program\n"
      "ends with exit code 2. A run writes its deck with all values resolved to `deck.toml` in\n"
      "its directory. `trireme help deck` prints this page on a terminal; both are generated\n"
      "from the key tables `src/deck/table*.cpp`.\n\n"
      "The column *checkpoint* applies when a run continues from a checkpoint, or when `eval` or\n"
      "`generate` read one. A *fixed* key must have the checkpoint's value; another one is an\n"
      "error. A *listed* key may differ, and the difference is printed. Only training lists keys\n"
      "that change nothing but training.\n";
  return out + key_markdown(deck_kind());
}

}  // namespace trireme::deck
