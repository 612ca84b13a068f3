// `trireme help`: commands, keys of decks and machine files, and the topics of topics.cpp.
#include <trireme/base/check.hpp>
#include <trireme/base/terminal.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/commands/shells.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/deck/key_file.hpp>
#include <trireme/plan/machine_file.hpp>
#include <trireme/plan/machine_keys.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

using deck::KeyText;
using deck::KeyType;
using nlohmann::ordered_json;

void add_range(const KeyText& key, ordered_json& out) {
  using Limits = std::numeric_limits<std::int64_t>;
  const deck::Range& range = key.range;
  if (key.type == KeyType::integer || key.type == KeyType::integers || key.type == KeyType::bytes) {
    if (range.least != Limits::min()) out["minimum"] = range.least;
    if (range.most != Limits::max()) out["maximum"] = range.most;
    return;
  }
  if (std::isfinite(range.low)) out[range.low_open ? "exclusiveMinimum" : "minimum"] = range.low;
  if (std::isfinite(range.high)) out[range.high_open ? "exclusiveMaximum" : "maximum"] = range.high;
}

ordered_json words_of(const KeyText& key) {
  ordered_json words = ordered_json::array();
  for (const std::string_view word : key.choices) words.push_back(word);
  return words;
}

/// Type and accepted values of a key in JSON Schema.
ordered_json accepted(const KeyText& key) {
  ordered_json out;
  switch (key.type) {
    case KeyType::string:
    case KeyType::path:
      out["type"] = "string";
      if (key.nonempty) out["minLength"] = 1;
      break;
    case KeyType::integer:
      out["type"] = "integer";
      add_range(key, out);
      break;
    case KeyType::number:
      out["type"] = "number";
      add_range(key, out);
      break;
    case KeyType::boolean:
      out["type"] = "boolean";
      break;
    case KeyType::duration:
      out["type"] = "string";
      out["pattern"] = "^[0-9]+:[0-5][0-9]:[0-5][0-9]$";
      break;
    case KeyType::choice:
      out["enum"] = words_of(key);
      break;
    case KeyType::bytes:
      out["type"] = {"number", "string"};
      add_range(key, out);
      break;
    case KeyType::list:
      out["type"] = "array";
      out["items"] = key.choices.empty() ? ordered_json{{"type", "string"}}
                                         : ordered_json{{"enum", words_of(key)}};
      break;
    case KeyType::integers:
      out["type"] = "array";
      out["items"] = {{"type", "integer"}};
      add_range(key, out["items"]);
      break;
  }
  return out;
}

void add_default(const KeyText& key, ordered_json& out) {
  // The default of a duration is stored in seconds, but files contain strings.
  if (!key.fallback || key.type == KeyType::duration) return;
  std::visit([&out](const auto& value) { out["default"] = value; }, *key.fallback);
}

ordered_json schema_of(const KeyText& key) {
  ordered_json out{
      {"description", key.unit.empty() ? key.help : text(key.help, " (", key.unit, ")")}};
  out.update(accepted(key));
  add_default(key, out);
  return out;
}

struct HelpOptions {
  std::string topic;
  bool markdown = false;
  bool schema = false;
  bool man = false;
  std::string share;  ///< folder
};

void show(const std::string& words) {
  std::cout << terminal::wrapped(words, terminal::columns());
}

/// Help on the section, or on the keys with this name or alias; "" if there is no such key.
std::string text_of_deck_topic(const std::string& topic) {
  const deck::FileKind& kind = deck::deck_kind();
  for (const deck::Section& section : kind.sections)
    if (section.name == topic) return section_text(kind, section);
  std::string out;
  for (const auto& [key, note] : kind.meant_by(topic)) {
    if (!out.empty()) out += "\n";
    out += text("[", key->section, "]\n", key_text(*key));
    if (!note.empty()) out += text("  ", topic, ": ", note, "\n");
  }
  return out;
}

void help(const CLI::App& app, const HelpOptions& options) {
  if (!options.share.empty()) return write_share(app, options.share);
  if (options.man) {
    std::cout << man_page(app, options.topic);
    return;
  }
  if (options.topic == "deck" || options.topic == "machine") {
    const bool deck = options.topic == "deck";
    if (options.schema)
      std::cout << key_schema(deck);
    else if (options.markdown)
      std::cout << (deck ? deck::reference_markdown() : plan::machine_markdown());
    else
      show(deck ? deck::reference_text() : plan::machine_text());
    return;
  }
  check_usage(!options.markdown && !options.schema,
              "--markdown and --schema are for `trireme help deck` and `trireme help machine`");
  if (options.topic.empty()) {
    std::cout << help_text(app);
    return;
  }
  if (options.topic == "exit-codes") return show(exit_codes_text());
  if (options.topic == "environment") return show(environment_text());
  std::vector<std::string> topics{"deck", "machine", "exit-codes", "environment"};
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    topics.push_back(command->get_name());
    if (command->get_name() != options.topic) continue;
    std::cout << help_text(*command);
    return;
  }
  if (const std::string found = text_of_deck_topic(options.topic); !found.empty())
    return show(found);
  for (const deck::Section& section : deck::deck_kind().sections) topics.push_back(section.name);
  const std::string best = nearest(options.topic, topics);
  throw UsageError(text("no help on ", options.topic, "; ",
                        best.empty() ? "the topics are keys of a deck, " + join(topics, ", ")
                                     : "did you mean " + best + "?"));
}

}  // namespace

std::string key_schema(bool of_decks) {
  const deck::FileKind& kind = of_decks ? deck::deck_kind() : plan::machine_kind();
  ordered_json sections = ordered_json::object();
  for (const deck::Section& section : kind.sections) {
    ordered_json keys = ordered_json::object();
    for (const KeyText* key : kind.table)
      if (key->section == section.name) keys[key->name] = schema_of(*key);
    sections[section.name] = {{"description", section.help},
                              {"type", "object"},
                              {"additionalProperties", false},
                              {"properties", std::move(keys)}};
  }
  const ordered_json schema{{"$schema", "http://json-schema.org/draft-07/schema#"},
                            {"title", text("Trireme ", kind.name)},
                            {"type", "object"},
                            {"additionalProperties", false},
                            {"properties", std::move(sections)}};
  return schema.dump(1) + "\n";
}

void add_help(CLI::App& app) {
  const auto options = std::make_shared<HelpOptions>();
  CLI::App* command = app.add_subcommand(
      "help", "Explain a command, the keys of a deck or machine file, or exit codes");
  command
      ->add_option(
          "TOPIC", options->topic,
          "A command, deck, machine, a section or key of a deck, exit-codes or environment")
      ->type_name("");
  CLI::Option* markdown =
      command->add_flag("--markdown", options->markdown, "Print the keys as Markdown");
  command
      ->add_flag("--schema", options->schema,
                 "Print the keys as a JSON Schema, with which editors complete and check a file")
      ->excludes(markdown);
  command->add_flag("--man", options->man, "Print the manual page of the topic, for man -l");
  command
      ->add_option("--share", options->share,
                   "Write all manual pages, completion scripts and JSON Schemas below this folder, "
                   "as an installation has them")
      ->type_name("FOLDER");
  command->footer(
      "Examples:\n  trireme help train\n  trireme help deck\n  trireme help optimizer\n  trireme "
      "help "
      "learning_rate\n  trireme help exit-codes");
  command->callback([&app, options] { help(app, *options); });
}

}  // namespace trireme::commands
