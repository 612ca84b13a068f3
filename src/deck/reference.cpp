#include <trireme/deck/reference.hpp>

#include <trireme/base/text.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/deck/value.hpp>

namespace trireme::deck {
namespace {

std::string fallback_text(const KeyText& key) {
  if (key.required()) return "required";
  return key.rule.empty() ? literal(key, *key.fallback) : key.rule;
}

/// "|" would end a cell of a Markdown table, and "<" begin a tag.
std::string cell(const std::string& words) {
  std::string out;
  for (const char c : words) out += c == '|' ? "\\|" : c == '<' ? "&lt;" : std::string(1, c);
  return out;
}

}  // namespace

std::string key_text(const FileKind& kind) {
  std::string out;
  for (const Section& section : kind.sections) {
    out += text("\n[", section.name, "]  ", section.help, "\n");
    for (const KeyText* key : kind.table) {
      if (key->section != section.name) continue;
      out +=
          text("  ", key->name, std::string(key->name.size() < 22 ? 22 - key->name.size() : 1, ' '),
               key->help, key->unit.empty() ? "" : text(" [", key->unit, "]"), "\n",
               std::string(24, ' '), expectation(*key), "; ",
               key->required() ? "required" : text("default ", fallback_text(*key)), "\n");
    }
  }
  return out;
}

std::string key_markdown(const FileKind& kind) {
  std::string out;
  for (const Section& section : kind.sections) {
    out += text("\n## [", section.name, "]\n\n", section.help,
                "\n\n| key | meaning | accepted | unit | default |\n|---|---|---|---|---|\n");
    for (const KeyText* key : kind.table)
      if (key->section == section.name)
        out += text("| `", key->name, "` | ", cell(key->help), " | ", cell(expectation(*key)),
                    " | ", key->unit, " | ", cell(fallback_text(*key)), " |\n");
  }
  return out;
}

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
