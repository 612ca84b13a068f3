#include <trireme/deck/deck.hpp>
#include <trireme/deck/key_file.hpp>

namespace trireme::deck {

std::string reference_text() {
  std::string out =
      "A deck is a TOML file. Each key stands in its section:\n\n"
      "  [run]\n  steps = 1000\n\n"
      "and can be overridden on the command line: run.steps=1000 (strings need no quotes).\n";
  return out + key_text(deck_kind());
}

std::string reference_markdown() {
  std::string out =
      "# The deck\n\n"
      "A deck is a TOML file that says everything about a run. Each key stands in its section,\n"
      "`key = value`, and every key can be overridden on the command line as `section.key=value`,\n"
      "where strings need no quotes:\n\n"
      "```\ntrireme check inputs/tiny.toml --ranks 4 run.steps=20 parallel.schedule=gpipe\n```\n\n"
      "Mistakes are reported all at once, each with its file, line and column, and end the "
      "program\n"
      "with exit code 2. A run writes its deck with every value resolved to `deck.toml` in its\n"
      "directory. `trireme help deck` prints this page on a terminal; both are made from the one\n"
      "table in `src/deck/table.cpp`.\n";
  return out + key_markdown(deck_kind());
}

}  // namespace trireme::deck
