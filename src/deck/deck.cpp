#include <trireme/deck/deck.hpp>

#include <trireme/base/check.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/diagnostics.hpp>
#include <trireme/deck/lexical.hpp>
#include <trireme/deck/table.hpp>
#include <trireme/deck/value.hpp>

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace trireme::deck {
namespace {

std::vector<std::string> section_names() {
  std::vector<std::string> out;
  for (const Section& section : sections()) out.push_back(section.name);
  return out;
}

/// "; did you mean \"layers\"?", or where else the key lives, or nothing.
std::string suggestion(std::string_view section, std::string_view name) {
  for (const Key& key : keys())
    if (key.name == name && key.section != section)
      return text("; it belongs to [", key.section, "]");
  std::vector<std::string> siblings, others;
  for (const Key& key : keys()) (key.section == section ? siblings : others).push_back(key.name);
  std::string best = nearest(name, siblings);
  if (!best.empty()) return text("; did you mean ", best, "?");
  best = nearest(name, others);
  for (const Key& key : keys())
    if (key.name == best) return text("; did you mean ", best, " of [", key.section, "]?");
  return text("; `trireme help deck` lists all keys");
}

std::string section_suggestion(std::string_view section) {
  const std::string best = nearest(section, section_names());
  if (!best.empty()) return text("; did you mean [", best, "]?");
  return text("; the sections are ", join(section_names(), ", "));
}

/// A TOML value as one of ours; nothing for arrays, tables, dates and times.
std::optional<Value> plain(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  return std::nullopt;
}

std::string kind_of(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  return "a date or time";
}

/// Reads one deck, from TOML to the resolved Config, and collects its mistakes on the way.
class Reader {
 public:
  Reader(std::string_view content, const std::string& file_name)
      : content_(content), diagnostics_(file_name, content) {
    deck_.file_name = file_name;
  }

  Deck read(const std::vector<std::string>& overrides) {
    read_file();
    for (const std::string& override_text : overrides) read_override(override_text);
    fill_defaults();
    cross_check(deck_, invalid_, diagnostics_);
    diagnostics_.throw_if_any();
    return std::move(deck_);
  }

 private:
  void read_file() {
    refuse_unparsable(content_, deck_.file_name);
    toml::table root;
    try {
      root = toml::parse(content_, deck_.file_name);
    } catch (const toml::parse_error& error) {
      const auto place = error.source().begin;
      diagnostics_.at(place.line, place.column, std::string(error.description()));
      diagnostics_.throw_if_any();
    }
    for (const auto& [key, node] : root) {
      const auto place = key.source().begin;
      if (const toml::table* table = node.as_table())
        read_section(key, *table);
      else if (!diagnostics_.full())
        diagnostics_.at(
            place.line, place.column,
            node.is_array_of_tables()
                ? text("[[", key.str(), "]] is a list of tables; write [", key.str(), "]")
                : text(shortened(key.str()), " stands outside of any section",
                       suggestion("", key.str())));
      else
        diagnostics_.add("");
    }
  }

  void read_section(const toml::key& section, const toml::table& table) {
    const auto all = section_names();
    const auto place = section.source().begin;
    if (std::ranges::find(all, section.str()) == all.end()) {
      diagnostics_.at(place.line, place.column,
                      text("unknown section [", shortened(section.str()), "]",
                           section_suggestion(section.str())));
      return;
    }
    for (const auto& [name, node] : table) read_key(section.str(), name, node);
  }

  void read_key(std::string_view section, const toml::key& name, const toml::node& node) {
    const Key* key = find_key(section, name.str());
    if (key == nullptr) {
      const auto place = name.source().begin;
      diagnostics_.at(place.line, place.column,
                      diagnostics_.full() ? ""
                                          : text("unknown key ", shortened(name.str()), " in [",
                                                 section, "]", suggestion(section, name.str())));
      return;
    }
    const auto place = node.source().begin;
    deck_.places[key->full_name()] = text(deck_.file_name, ":", place.line);
    std::string problem;
    const auto raw = plain(node);
    const auto value = raw ? accept(*key, *raw, problem) : std::nullopt;
    if (value) {
      key->store(deck_.config, *value);
      return;
    }
    if (!raw) problem = text("expected ", expectation(*key), ", found ", kind_of(node));
    invalid_.insert(key->full_name());
    diagnostics_.at(place.line, place.column, text("[", section, "] ", key->name, ": ", problem));
  }

  void read_override(const std::string& written) {
    const auto report = [&](const auto&... parts) {
      diagnostics_.add(text("command line: ", shortened(written), ": ", parts...));
    };
    const std::size_t equals = written.find('=');
    const std::string name = written.substr(0, equals);
    const std::size_t dot = name.find('.');
    if (equals == std::string::npos || dot == std::string::npos) {
      report("expected section.key=value, such as run.steps=20");
      return;
    }
    const std::string section = name.substr(0, dot);
    const Key* key = find_key(section, name.substr(dot + 1));
    if (key == nullptr) {
      const auto all = section_names();
      if (std::ranges::find(all, section) == all.end())
        report("unknown section ", section, section_suggestion(section));
      else
        report("unknown key ", name.substr(dot + 1), " in [", section, "]",
               suggestion(section, name.substr(dot + 1)));
      return;
    }
    std::string problem;
    if (const auto value = accept_text(*key, written.substr(equals + 1), problem)) {
      key->store(deck_.config, *value);
    } else {
      invalid_.insert(key->full_name());
      report(problem);
    }
    deck_.places[key->full_name()] = "command line";
  }

  void fill_defaults() {
    for (const Key& key : keys()) {
      if (deck_.places.contains(key.full_name())) continue;
      if (key.required()) {
        invalid_.insert(key.full_name());
        diagnostics_.add(text(deck_.file_name, ": [", key.section, "] ", key.name,
                              " is missing: expected ", expectation(key), " (", key.help, ")"));
      } else if (key.fallback) {
        key.store(deck_.config, *key.fallback);
      }
    }
    for (const Key& key : keys())
      if (key.derived && !deck_.places.contains(key.full_name())) key.derived(deck_.config);
  }

  std::string_view content_;
  Diagnostics diagnostics_;
  Deck deck_;
  std::set<std::string> invalid_;  ///< keys that were given a value that cannot be kept, or missing
};

}  // namespace

std::string Deck::where(std::string_view section, std::string_view name) const {
  const Key* key = find_key(section, name);
  check(key != nullptr, "the deck has no key [", section, "] ", name);
  const auto place = places.find(key->full_name());
  return place == places.end() ? "default" : place->second;
}

std::string Deck::cite(std::string_view section, std::string_view name) const {
  const std::string place = where(section, name);
  const Key& key = *find_key(section, name);
  return text("[", section, "] ", name, " = ", literal(key, key.load(config)), " (", place, ")");
}

Deck parse_deck(std::string_view content, const std::string& file_name,
                const std::vector<std::string>& overrides) {
  return Reader(content, file_name).read(overrides);
}

Deck load_deck(const std::string& path, const std::vector<std::string>& overrides) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  check_usage(std::filesystem::exists(status), path, ": no such deck");
  check_usage(!std::filesystem::is_directory(status), path,
              " is a folder, expected a deck (a file)");
  std::ifstream in(path, std::ios::binary);
  check_usage(in.is_open(), path, ": the deck cannot be opened for reading");
  std::string content(deck_bytes_limit + 1, '\0');
  in.read(content.data(), static_cast<std::streamsize>(content.size()));
  check_usage(!in.bad(), path, ": the deck cannot be read");
  content.resize(static_cast<std::size_t>(in.gcount()));
  return parse_deck(content, path, overrides);
}

std::string resolved_toml(const Deck& deck) {
  std::string out;
  for (const Section& section : sections()) {
    out += text(out.empty() ? "" : "\n", "[", section.name, "]\n");
    for (const Key& key : keys())
      if (key.section == section.name)
        out += text(key.name, " = ", literal(key, key.load(deck.config)), "\n");
  }
  return out;
}

}  // namespace trireme::deck
