// Reads a deck with its overrides, compares two decks, and writes a deck's resolved text.
#include <trireme/deck/deck.hpp>

#include <trireme/base/check.hpp>
#include <trireme/deck/aliases.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/key_file.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/value.hpp>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace trireme::deck {

const FileKind& deck_kind() {
  static const FileKind kind = [] {
    FileKind deck = file_kind("deck", "`trireme help deck` lists all keys", sections(), keys());
    deck.aliases = deck_aliases();
    return deck;
  }();
  return kind;
}

std::string Deck::where(std::string_view section, std::string_view name) const {
  const Key* key = find_key(section, name);
  check(key != nullptr, "the deck has no key [", section, "] ", name);
  const auto place = places.find(key->full_name());
  return place == places.end() ? "default" : place->second;
}

std::string Deck::cite(std::string_view section, std::string_view name) const {
  const std::string place = where(section, name);
  const Key& key = *find_key(section, name);
  return deck::cite(key, key.load(config), place);
}

Deck parse_deck(std::string_view content, const std::string& file_name,
                const std::vector<std::string>& overrides) {
  Deck deck;
  deck.file_name = file_name;
  Diagnostics diagnostics(file_name, content);
  Given given = read_keys(content, file_name, overrides, deck_kind(), diagnostics);
  store_keys(keys(), file_name, given, deck.config, diagnostics);
  deck.places = std::move(given.places);
  cross_check(deck, given.invalid, diagnostics);
  diagnostics.throw_if_any();
  return deck;
}

namespace {

/// Loads the deck in the folder of a run or of a checkpoint (see load_deck). `folder`: the run's
/// folder; "" for a checkpoint.
Deck load_kept(const std::string& file, const std::string& folder,
               const std::vector<std::string>& overrides) {
  const std::string content = read_key_file(file, deck_kind());
  Deck deck = parse_deck(content, file, overrides);
  const auto is_given = [&](const char* section) {
    return deck.where(section, "directory") == "command line";
  };
  if (!folder.empty() && !is_given("run")) deck.config.run.directory = folder;
  const Config kept = parse_deck(content, file).config;
  if (!is_given("checkpoint") && kept.checkpoint.directory == kept.run.directory + "/checkpoints")
    deck.config.checkpoint.directory = deck.config.run.directory + "/checkpoints";
  return deck;
}

}  // namespace

Deck load_deck(const std::string& path, const std::vector<std::string>& overrides) {
  const std::filesystem::path folder(path);
  std::error_code unreadable;
  if (!std::filesystem::is_directory(folder, unreadable))
    return parse_deck(read_key_file(path, deck_kind()), path, overrides);
  const std::string name = path.substr(0, std::max<std::size_t>(1, path.find_last_not_of('/') + 1));
  const std::string file = (name == "/" ? "" : name) + "/deck.toml";
  check_usage(std::filesystem::exists(file, unreadable), path,
              " is a folder without deck.toml; give the path of a deck (a TOML file), or the "
              "folder of a run, which holds its deck");
  const bool is_run = std::filesystem::exists(name + "/events.jsonl", unreadable);
  return load_kept(file, is_run ? name : "", overrides);
}

std::string resolved_toml(const Deck& deck) {
  std::string out;
  for (const Section& section : sections()) {
    out += text(out.empty() ? "" : "\n", "[", section.name, "]\n");
    for (const Key& key : keys())
      if (key.section == section.name && !is_open(deck, section.name, key.name))
        out += text(key.name, " = ", literal(key, key.load(deck.config)), "\n");
  }
  return out;
}

std::vector<Difference> differences(const Deck& stored, const Deck& current) {
  std::vector<Difference> found;
  const bool have_experts =
      stored.config.model.experts.present() || current.config.model.experts.present();
  const bool have_encoder =
      stored.config.model.encoder.present() || current.config.model.encoder.present();
  const bool have_images =
      stored.config.model.vision.present() || current.config.model.vision.present();
  for (const Key& key : keys()) {
    if (key.section == "vision" && !have_images) continue;
    if (key.section == "experts" && !have_experts) continue;
    if (key.section == "encoder" && !have_encoder) continue;
    const Value before = key.load(stored.config);
    const Value now = key.load(current.config);
    if (before == now) continue;
    // Schedules and strategies change results only by 2bw, staleness and updates.
    const std::string name = key.full_name();
    const bool delays =
        (name == "parallel.schedule" &&
         stored.config.parallel.overlaps_steps() != current.config.parallel.overlaps_steps()) ||
        name == "parallel.staleness" || name == "parallel.updates";
    Effect effect = delays ? Effect::training : key.effect;
    // Models with an encoder have the same weights for spans and for pairs.
    if (name == "model.objective" && stored.config.model.encoder.present() &&
        current.config.model.encoder.present())
      effect = Effect::numbers;
    if (key.effect == Effect::length)
      effect = effect_of_sequence(stored.config.model, current.config.model).effect;
    found.push_back({key.section, key.name, literal(key, before), literal(key, now),
                     current.where(key.section, key.name), effect});
  }
  return found;
}

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

SequenceEffect effect_of_sequence(const ModelConfig& stored, const ModelConfig& current) {
  if (current.positions == Positions::learned)
    return {Effect::model, "learned positions have a row for each token of a sample"};
  const std::int64_t original = current.rope_original_sequence;
  if (current.rope_scaling == RotaryScalingKind::dynamic &&
      std::max(stored.sequence, original) != std::max(current.sequence, original))
    return {Effect::function, "rope_scaling = \"dynamic\" computes the rotary positions from it"};
  return {};
}

}  // namespace trireme::deck
