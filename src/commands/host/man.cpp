// Manual pages, and all files of an installation's share/.
#include <trireme/base/check.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/shells.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/deck/key_file.hpp>
#include <trireme/deck/value.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/plan/machine_keys.hpp>

#include <CLI/CLI.hpp>

#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <system_error>

namespace trireme::commands {
namespace {

/// Number of bytes of the UTF-8 character that begins with the byte `first`.
std::size_t width_of(unsigned char first) {
  return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/// A line of text, escaped for roff.
std::string escaped(const std::string& line) {
  std::string out = line.starts_with('.') || line.starts_with('\'') ? "\\&" : "";
  for (std::size_t at = 0; at < line.size();) {
    const auto c = static_cast<unsigned char>(line[at]);
    const std::size_t width = width_of(c);
    if (width > 1) {  // \[u00B7]
      std::uint32_t code = c & (0x7Fu >> width);
      for (std::size_t i = 1; i < width && at + i < line.size(); ++i)
        code = code << 6 | (static_cast<unsigned char>(line[at + i]) & 0x3Fu);
      std::array<char, 16> shown{};
      std::snprintf(shown.data(), shown.size(), "\\[u%04X]", code);
      out += shown.data();
    } else if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '"') {
      out += "\\(dq";
    } else {
      out += line[at];
    }
    at += width;
  }
  return out;
}

std::string heading(const std::string& name, int section, const std::string& brief) {
  std::string title = name;
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text(".TH ", title, " ", section, " \"\" \"trireme ", TRIREME_VERSION, "\" \"Trireme\"\n",
              ".SH NAME\n", escaped(name), " \\- ", escaped(brief), "\n");
}

std::string entry(const std::string& tag, const std::string& body) {
  return text(".TP\n.B ", escaped(tag), "\n", escaped(body), "\n");
}

/// A command's footer in roff: paragraphs, and examples with their line breaks.
std::string footer(const std::string& words) {
  std::string paragraphs;
  std::string examples;
  std::istringstream lines(words);
  bool in_examples = false;
  for (std::string line; std::getline(lines, line);) {
    const bool begins = line.starts_with("Example");
    in_examples = in_examples || begins;
    if (begins) continue;
    std::string& out = in_examples ? examples : paragraphs;
    if (line.empty() && !in_examples)
      out += out.empty() ? "" : ".PP\n";
    else
      out += escaped(line) + "\n";
  }
  if (paragraphs.ends_with(".PP\n")) paragraphs.resize(paragraphs.size() - 4);
  return text(paragraphs.empty() ? "" : ".SH NOTES\n", paragraphs,
              examples.empty() ? "" : ".SH EXAMPLES\n.nf\n", examples,
              examples.empty() ? "" : ".fi\n");
}

std::string exit_status() {
  std::string out = ".SH EXIT STATUS\n";
  for (const HelpRow& row : exit_codes())
    out += entry(std::string(row.name), std::string(row.meaning));
  return out;
}

std::string see_also(const std::string& self) {
  std::vector<std::string> pages;
  for (const char* page : {"trireme (1)", "trireme-deck (5)", "trireme-machine (5)"})
    if (!std::string(page).starts_with(self + " ")) pages.push_back(".BR " + escaped(page));
  return text(".SH SEE ALSO\n", join(pages, " ,\n"), "\n");
}

std::string program_page(const CLI::App& app) {
  std::string out = heading("trireme", 1, "train transformer language models on supercomputers");
  out += ".SH SYNOPSIS\n.B trireme\n.I command\n.RI [ argument ...]\n.SH DESCRIPTION\n" +
         escaped(app.get_description()) +
         "\nA deck is a TOML file with all settings of a run; "
         "every key can be overridden on the command line.\n.SH COMMANDS\n";
  for (const CLI::App* command : app.get_subcommands(nullptr))
    out += entry(command->get_name(),
                 text(command->get_description(), "; see trireme-", command->get_name(), "(1)"));
  return out + exit_status() + see_also("trireme");
}

std::string command_page(const CLI::App& command) {
  const std::string name = "trireme-" + command.get_name();
  std::string out = heading(name, 1, command.get_description());
  std::string operands;
  std::string options;
  std::string synopsis =
      text(".SH SYNOPSIS\n.B trireme ", escaped(command.get_name()), "\n[options]");
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      const bool keys = option->get_name() == "OVERRIDES";
      const std::string shown = keys ? "section.key=value" : option->get_name();
      const bool several = option->get_items_expected_max() > 1;
      synopsis += text("\n", option->get_required() ? "" : "[", escaped(shown),
                       several ? " ..." : "", option->get_required() ? "" : "]");
      operands += entry(shown, option->get_description());
      continue;
    }
    std::vector<std::string> names;
    for (const std::string& one : option->get_snames()) names.push_back("-" + one);
    for (const std::string& one : option->get_lnames()) names.push_back("--" + one);
    const bool value = option->get_items_expected_max() > 0;
    const std::string fallback = option->get_default_str();
    options += entry(
        text(join(names, ", "), value ? " " + option->get_type_name() : ""),
        text(option->get_description(), fallback.empty() ? "" : text(" (default ", fallback, ")")));
  }
  out += synopsis + "\n.SH DESCRIPTION\n" + escaped(command.get_description()) + ".\n";
  if (!operands.empty()) out += ".SH ARGUMENTS\n" + operands;
  return out + ".SH OPTIONS\n" + options + footer(command.get_footer()) + exit_status() +
         see_also(name);
}

std::string value_text(const deck::KeyText& key) {
  std::vector<std::string> parts;
  if (!key.unit.empty()) parts.push_back(text("unit: ", key.unit));
  if (!key.choices.empty()) {
    std::vector<std::string> words;
    for (const std::string_view word : key.choices) words.emplace_back(word);
    parts.push_back("one of " + join(words, ", "));
  }
  if (!key.rule.empty())
    parts.push_back(text("default: ", key.rule));
  else if (key.fallback)
    parts.push_back("default: " + deck::literal(key, *key.fallback));
  else
    parts.emplace_back("required");
  return join(parts, "; ");
}

std::string file_page(const std::string& topic, const deck::FileKind& kind,
                      const std::string& brief, const std::string& description) {
  const std::string name = "trireme-" + topic;
  std::string out = heading(name, 5, brief) + ".SH DESCRIPTION\n" + description;
  for (const deck::Section& section : kind.sections) {
    out += text(".SH [", escaped(section.name), "]\n", escaped(section.help), "\n");
    for (const deck::KeyText* key : kind.table)
      if (key->section == section.name)
        out += entry(std::string(key->name), text(key->help, " (", value_text(*key), ")"));
  }
  return out + see_also(name);
}

void write(const std::filesystem::path& path, const std::string& content) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  check_usage(!error, path.parent_path().string(), ": cannot be created: ", error.message());
  io::write_output(path.string(), content, "; choose another folder");
}

}  // namespace

std::string man_page(const CLI::App& app, const std::string& topic) {
  if (topic.empty()) return program_page(app);
  if (topic == "deck")
    return file_page(
        "deck", deck::deck_kind(), "settings of a run of trireme",
        "A deck is a file in TOML. Each key belongs to a section, and can be overridden on the\n"
        "command line: run.steps=1000 (strings need no quotes).\n");
  if (topic == "machine")
    return file_page("machine", plan::machine_kind(), "a machine that trireme plans for",
                     "A machine file describes devices and network in TOML, for\n.B trireme check, "
                     "plan\nand\n.BR predict .\n");
  for (const CLI::App* command : app.get_subcommands(nullptr))
    if (command->get_name() == topic) return command_page(*command);
  throw UsageError(text("no manual page on ", topic));
}

void write_share(const CLI::App& app, const std::string& folder) {
  const std::filesystem::path share(folder);
  write(share / "man/man1/trireme.1", man_page(app, ""));
  for (const CLI::App* command : app.get_subcommands(nullptr))
    write(share / "man/man1" / text("trireme-", command->get_name(), ".1"),
          man_page(app, command->get_name()));
  for (const char* topic : {"deck", "machine"}) {
    write(share / "man/man5" / text("trireme-", topic, ".5"), man_page(app, topic));
    write(share / "trireme" / text(topic, ".schema.json"),
          key_schema(std::string(topic) == "deck"));
  }
  write(share / "bash-completion/completions/trireme", completion_script(app, "bash"));
  write(share / "zsh/site-functions/_trireme", completion_script(app, "zsh"));
  write(share / "fish/vendor_completions.d/trireme.fish", completion_script(app, "fish"));
}

}  // namespace trireme::commands
