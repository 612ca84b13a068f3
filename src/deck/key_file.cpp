// Reads TOML files of [section] and key = value with a key table: parsing, overrides, suggestions
// for misspelt names, and help texts from the table.
#include <trireme/deck/key_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/deck/diagnostics.hpp>

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

namespace trireme::deck {
namespace {

/// The elements of an array if all of them are of type T, otherwise std::nullopt.
template <class T>
std::optional<std::vector<T>> elements(const toml::array& array) {
  std::vector<T> all;
  for (const auto& element : array) {
    const auto* value = element.as<T>();
    if (value == nullptr) return std::nullopt;
    all.push_back(value->get());
  }
  return all;
}

/// A TOML value as a Value; std::nullopt for tables, dates, times, and arrays whose elements are
/// neither all strings nor all integers.
std::optional<Value> plain(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  const auto* array = node.as_array();
  if (array == nullptr) return std::nullopt;
  if (auto words = elements<std::string>(*array)) return *words;
  if (auto integers = elements<std::int64_t>(*array)) return *integers;
  return std::nullopt;
}

/// Remedy for one of the most common errors of the parser; "" for other errors.
std::string_view remedy_for(std::string_view complaint) {
  const auto has = [&](std::string_view words) { return complaint.find(words) != complaint.npos; };
  if (has("could not determine value type")) return "; put strings into quotes";
  if (has("cannot redefine existing")) return "; remove one of the two";
  if (has("could not be interpreted as a value")) return "; the number is too large";
  return "";
}

std::string kind_of(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  return "a date or time";
}

/// The word in lower case, with underscores for hyphens.
std::string plain_word(std::string_view word) {
  std::string out(word);
  for (char& c : out) c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

bool has_word(const Alias& alias, const std::string& word) {
  return !word.empty() && word.find(' ') == word.npos &&
         text(" ", alias.words, " ").find(text(" ", word, " ")) != std::string::npos;
}

/// Reads one file and its overrides, and collects their mistakes.
class Reader {
 public:
  Reader(std::string_view content, const std::string& file_name, const FileKind& kind,
         Diagnostics& diagnostics)
      : content_(content), file_name_(file_name), kind_(kind), diagnostics_(diagnostics) {}

  void read_file() {
    refuse_unparsable(content_, file_name_, kind_.name, kind_.help);
    toml::table root;
    try {
      root = toml::parse(content_, file_name_);
    } catch (const toml::parse_error& error) {
      const auto place = error.source().begin;
      diagnostics_.at(place.line, place.column,
                      text(error.description(), remedy_for(error.description())));
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
                : text(shortened(key.str()), " is outside of any section",
                       suggestion("", key.str())));
      else
        diagnostics_.add("");
    }
  }

  void read_override(const std::string& written) {
    if (const std::size_t valid = utf8_run(written).valid; valid < written.size()) {
      diagnostics_.add(text("command line: ", shortened(written.substr(0, valid)), ": byte ",
                            valid + 1,
                            " of this override is not UTF-8, in which a deck is written"));
      return;
    }
    const auto report = [&](const auto&... parts) {
      diagnostics_.add(text("command line: ", shortened(written), ": ", parts...));
    };
    const std::size_t equals = written.find('=');
    const std::string name = written.substr(0, equals);
    const std::size_t dot = name.find('.');
    if (equals == std::string::npos || dot == std::string::npos) {
      const bool has_key = equals != std::string::npos && !name.empty();
      const std::string meant = has_key ? kind_.override_for(name, written.substr(equals + 1)) : "";
      report("expected section.key=value without spaces", !meant.empty() ? "; " + meant
                                                          : has_key      ? suggestion("", name)
                                                                    : ", such as run.steps=20");
      return;
    }
    const std::string section = name.substr(0, dot);
    const KeyText* key = kind_.find(section, name.substr(dot + 1));
    if (key == nullptr) {
      const auto all = section_names();
      const std::string meant =
          kind_.find(likely_section(section), name.substr(dot + 1)) != nullptr
              ? ""
              : kind_.override_for(name.substr(dot + 1), written.substr(equals + 1));
      if (std::ranges::find(all, section) == all.end())
        report("unknown section ", section,
               meant.empty() ? section_suggestion(section) : "; " + meant);
      else
        report("unknown key ", name.substr(dot + 1), " in [", section, "]",
               suggestion(section, name.substr(dot + 1)));
      return;
    }
    std::string problem;
    if (const auto value = accept_text(*key, written.substr(equals + 1), problem)) {
      given_.values[key->full_name()] = *value;
    } else {
      given_.invalid.insert(key->full_name());
      report(problem);
    }
    given_.places[key->full_name()] = "command line";
  }

  Given take() { return std::move(given_); }

 private:
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
    const KeyText* key = kind_.find(section, name.str());
    if (key == nullptr) {
      const auto place = name.source().begin;
      diagnostics_.at(place.line, place.column,
                      diagnostics_.full() ? ""
                                          : text("unknown key ", shortened(name.str()), " in [",
                                                 section, "]", suggestion(section, name.str())));
      return;
    }
    const auto place = node.source().begin;
    given_.places[key->full_name()] = text(file_name_, ":", place.line);
    std::string problem;
    const std::string_view lost = lost_number(node);
    const auto raw = plain(node);
    const auto value = raw && lost.empty() ? accept(*key, *raw, problem) : std::nullopt;
    if (value) {
      given_.values[key->full_name()] = *value;
      return;
    }
    if (!raw) problem = text("expected ", expectation(*key), ", found ", kind_of(node));
    if (!lost.empty())
      problem = text("expected ", expectation(*key), ", found ", lost, ", which is too close to 0");
    given_.invalid.insert(key->full_name());
    diagnostics_.at(place.line, place.column, text("[", section, "] ", key->name, ": ", problem));
  }

  /// Text of a number that is not 0 but is read as 0, such as 1e-400; otherwise empty.
  std::string_view lost_number(const toml::node& node) const {
    const auto* number = node.as_floating_point();
    if (number == nullptr || number->get() != 0) return {};
    std::string_view rest = content_;
    for (auto line = node.source().begin.line; line > 1; --line)
      rest.remove_prefix(std::min(rest.find('\n'), rest.size() - 1) + 1);
    rest.remove_prefix(std::min<std::size_t>(node.source().begin.column - 1, rest.size()));
    const std::string_view written = rest.substr(0, rest.find_first_not_of("+-0123456789_.eE"));
    const std::string_view digits = written.substr(0, written.find_first_of("eE"));
    return digits.find_first_of("123456789") == digits.npos ? std::string_view() : written;
  }

  std::vector<std::string> section_names() const {
    std::vector<std::string> out;
    for (const Section& section : kind_.sections) out.push_back(section.name);
    return out;
  }

  /// "; did you mean layers?", the section that has the key, or the help of the file kind.
  std::string suggestion(std::string_view section, std::string_view name) const {
    const std::vector<Meant> meant = kind_.meant_by(name);
    if (!meant.empty() && meant.front().key->name == name)
      return text("; it belongs to [", meant.front().key->section, "]");
    if (!meant.empty()) {
      std::vector<std::string> keys;
      for (const Meant& m : meant)
        keys.push_back(text(m.key->name,
                            m.key->section == section ? "" : text(" of [", m.key->section, "]"),
                            m.note.empty() ? "" : text(" (", m.note, ")")));
      return text("; did you mean ", join(keys, " or "), "?");
    }
    std::vector<std::string> siblings, others;
    for (const KeyText* key : kind_.table)
      (key->section == section ? siblings : others).push_back(key->name);
    std::string best = nearest(name, siblings);
    if (!best.empty()) return text("; did you mean ", best, "?");
    best = nearest(name, others);
    for (const KeyText* key : kind_.table)
      if (key->name == best) return text("; did you mean ", best, " of [", key->section, "]?");
    return "; " + kind_.help;
  }

  std::string likely_section(std::string_view section) const {
    const auto alias = std::ranges::find_if(kind_.aliases, [&](const Alias& a) {
      return a.name.find('.') == a.name.npos && has_word(a, plain_word(section));
    });
    return alias == kind_.aliases.end() ? nearest(section, section_names())
                                        : std::string(alias->name);
  }

  std::string section_suggestion(std::string_view section) const {
    const std::string best = likely_section(section);
    if (!best.empty()) return text("; did you mean [", best, "]?");
    return text("; the sections are ", join(section_names(), ", "));
  }

  std::string_view content_;
  const std::string& file_name_;
  const FileKind& kind_;
  Diagnostics& diagnostics_;
  Given given_;
};

std::string fallback_text(const KeyText& key) {
  if (key.required()) return "required";
  if (key.often_required) return text("required, or ", key.rule);
  return key.rule.empty() ? literal(key, *key.fallback) : key.rule;
}

/// Escapes "|", which would end a cell of a Markdown table, and "<", which would begin a tag.
std::string cell(const std::string& words) {
  std::string out;
  for (const char c : words) out += c == '|' ? "\\|" : c == '<' ? "&lt;" : std::string(1, c);
  return out;
}

/// Whether a checkpoint fixes a key with this effect, as a cell of the key table.
std::string_view rule_of(Effect effect) {
  switch (effect) {
    case Effect::none:
    case Effect::place:
      return "";
    case Effect::training:
    case Effect::numbers:
    case Effect::samples:
      return "listed";
    case Effect::storage:
      return "listed; fixed if stored numbers have another type";
    case Effect::state:
      return "listed; fixed if optimizer state is missing";
    case Effect::batches:
      return "fixed after step 0";
    case Effect::length:
      return "listed; fixed where positions depend on it";
    case Effect::function:
      return "listed; fixed in evaluations";
    case Effect::model:
      return "fixed";
    case Effect::adapter:
      return "fixed with adapters";
  }
  return "";
}

}  // namespace

const KeyText* FileKind::find(std::string_view section, std::string_view key_name) const {
  for (const KeyText* key : table)
    if (key->section == section && key->name == key_name) return key;
  return nullptr;
}

std::vector<Meant> FileKind::meant_by(std::string_view written) const {
  const std::string word = plain_word(written);
  std::vector<Meant> found;
  for (const KeyText* key : table)
    if (key->name == word || key->full_name() == word) found.push_back({key, {}});
  if (!found.empty()) return found;
  for (const Alias& alias : aliases) {
    const std::size_t dot = alias.name.find('.');
    if (dot == alias.name.npos || !has_word(alias, word)) continue;
    found.push_back({find(alias.name.substr(0, dot), alias.name.substr(dot + 1)), alias.note});
  }
  return found;
}

std::string FileKind::override_for(std::string_view word, std::string_view value) const {
  std::string out;
  for (const auto& [key, note] : meant_by(word))
    out += text(out.empty() ? "write " : " or ", key->full_name(), "=",
                value.empty() || !note.empty() ? "..." : value,
                note.empty() ? "" : text(" (", note, ")"));
  return out;
}

std::string read_key_file(const std::string& path, const FileKind& kind) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  check_usage(std::filesystem::exists(status), path, ": no such ", kind.name,
              " (current folder: ", std::filesystem::current_path(error).string(),
              "); give the path of a TOML file");
  const std::string other = not_a_file(path, true);
  check_usage(other.empty(), path, " is ", other, "; give the path of a ", kind.name,
              " (a TOML file)");
  std::ifstream in(path, std::ios::binary);
  check_usage(in.is_open(), path, ": the ", kind.name, " cannot be opened for reading");
  std::string content(key_file_bytes_limit + 1, '\0');
  in.read(content.data(), static_cast<std::streamsize>(content.size()));
  check_usage(!in.bad(), path, ": the ", kind.name, " cannot be read");
  content.resize(static_cast<std::size_t>(in.gcount()));
  return content;
}

Given read_keys(std::string_view content, const std::string& file_name,
                const std::vector<std::string>& overrides, const FileKind& kind,
                Diagnostics& diagnostics) {
  Reader reader(content, file_name, kind, diagnostics);
  reader.read_file();
  for (const std::string& written : overrides) reader.read_override(written);
  return reader.take();
}

std::string missing(const std::string& file_name, const KeyText& key) {
  return text(file_name, ": [", key.section, "] ", key.name, " is missing: expected ",
              expectation(key), " (", key.help, ")");
}

std::string cite(const KeyText& key, const Value& value, const std::string& place) {
  return text("[", key.section, "] ", key.name, " = ", literal(key, value), " (", place, ")");
}

std::string key_text(const KeyText& key) {
  constexpr std::size_t column = 26;  // column of the help, after the longest name
  const std::size_t name = key.name.size();
  return text("  ", key.name, std::string(name < column ? column - name : 0, ' '), "  ", key.help,
              key.unit.empty() ? "" : text(" [", key.unit, "]"), "\n", std::string(column + 4, ' '),
              expectation(key), "; ", key.required() || key.often_required ? "" : "default ",
              fallback_text(key), "\n");
}

std::string section_text(const FileKind& kind, const Section& section) {
  std::string out = text("[", section.name, "]  ", section.help, "\n");
  for (const KeyText* key : kind.table)
    if (key->section == section.name) out += key_text(*key);
  return out;
}

std::string key_text(const FileKind& kind) {
  std::string out;
  for (const Section& section : kind.sections) out += "\n" + section_text(kind, section);
  return out;
}

namespace {

/// The accepted values of a key in a table, such as "integer, 1 … 65536 steps".
std::string accepted(const KeyText& key) {
  const Range& range = key.range;
  const Range all;
  std::string out;
  switch (key.type) {
    case KeyType::string:
      out = "string";
      break;
    case KeyType::path:
      out = "path";
      break;
    case KeyType::integer:
    case KeyType::integers:
      out = key.type == KeyType::integer ? "integer" : "list of integers";
      if (range.most != all.most)
        out += text(", ", range.least, " … ", range.most);
      else if (range.least != all.least)
        out += text(" ≥ ", range.least);
      break;
    case KeyType::number:
      out = "number";
      if (range.low != all.low) out += text(range.low_open ? " > " : " ≥ ", range.low);
      if (range.high != all.high) out += text(range.high_open ? ", < " : ", ≤ ", range.high);
      break;
    case KeyType::duration:
      out = "duration";
      break;
    case KeyType::bytes:
      out = "bytes, such as 80e9 or \"80 GiB\"";
      break;
    case KeyType::choice:
      out = expectation(key);
      if (out.starts_with("one of ")) out.erase(0, 7);
      break;
    case KeyType::boolean:
    case KeyType::list:
      out = expectation(key);
      break;
  }
  return out + (key.unit.empty() ? "" : text(" ", key.unit));
}

}  // namespace

std::string key_markdown(const FileKind& kind) {
  std::string out;
  const bool restarts = std::ranges::any_of(
      kind.table, [](const KeyText* key) { return key->effect != Effect::none; });
  for (const Section& section : kind.sections) {
    out += text("\n## [", section.name, "]\n\n", section.help,
                "\n\n| key | meaning | accepted | default |", restarts ? " checkpoint |" : "",
                "\n|---|---|---|---|", restarts ? "---|" : "", "\n");
    for (const KeyText* key : kind.table)
      if (key->section == section.name)
        out += text("| `", key->name, "` | ", cell(key->help), " | ", cell(accepted(*key)), " | ",
                    cell(fallback_text(*key)), " |",
                    restarts ? text(" ", rule_of(key->effect), " |") : "", "\n");
  }
  return out;
}

namespace {

constexpr int dots_limit = 4;  // section.key has one dot

/// Rejects multi-line strings and names with too many dots in one pass over the characters.
class Scan {
 public:
  Scan(std::string_view content, const std::string& file_name, const std::string& kind)
      : content_(content), file_name_(file_name), kind_(kind) {}

  void run() {
    while (at_ < content_.size()) {
      const char c = content_[at_];
      if (c == '"' || c == '\'')
        string(c);
      else if (c == '#')
        at_ = std::min(content_.find('\n', at_), content_.size());
      else
        plain(c);
    }
  }

 private:
  void string(char quote) {
    const std::string triple(3, quote);
    if (content_.substr(at_, 3) == triple)
      refuse(text("a ", kind_, " cannot contain multi-line strings"));
    for (++at_; at_ < content_.size(); ++at_) {
      const char c = content_[at_];
      if (c == '\n') return;  // not closed; the parser reports it
      if (c == '\\' && quote == '"') {
        if (at_ + 1 < content_.size() && content_[at_ + 1] != '\n') ++at_;
      } else if (c == quote) {
        ++at_;
        return;
      }
    }
  }

  void plain(char c) {
    const bool separates = c == '\n' || c == '=' || c == ',' || c == '[' || c == '{' || c == ']';
    if (separates) dots_ = 0;
    if (c == '.' && ++dots_ > dots_limit)
      refuse("a name with too many parts; expected section.key");
    if (c == '\n') {
      ++line_;
      line_start_ = at_ + 1;
    }
    ++at_;
  }

  [[noreturn]] void refuse(const std::string& message) {
    Diagnostics diagnostics(file_name_, content_);
    diagnostics.at(line_, at_ - line_start_ + 1, message);
    diagnostics.throw_if_any();
    throw UsageError(message);
  }

  std::string_view content_;
  const std::string& file_name_;
  const std::string& kind_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t line_start_ = 0;
  int dots_ = 0;
};

}  // namespace

std::string shortened(std::string_view word) {
  constexpr std::size_t limit = 80;
  std::string out(word.substr(0, limit));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return word.size() > limit ? out + " ..." : out;
}

void refuse_unparsable(std::string_view content, const std::string& file_name,
                       const std::string& kind, const std::string& help) {
  check_usage(static_cast<std::int64_t>(content.size()) <= key_file_bytes_limit, file_name,
              " is larger than 1 MiB; expected a ", kind, ", a TOML file of a few lines");
  check_usage(content.find('\0') == std::string_view::npos, file_name,
              " is a binary file; expected a ", kind, " in TOML text");
  check_usage(content.find_first_not_of(" \t\r\n") != std::string_view::npos, file_name,
              " is empty; ", help);
  Scan(content, file_name, kind).run();
}

}  // namespace trireme::deck
