// The table of pre-tokenizers of a tokenizer.json.
#include <trireme/data/pre_tokenizers.hpp>

#include <trireme/data/bpe_model.hpp>
#include <trireme/data/character_maps.hpp>
#include <trireme/data/metaspace.hpp>
#include <trireme/data/split_step.hpp>
#include <trireme/data/unicode.hpp>

#include <array>

namespace trireme::data {
namespace {

constexpr std::size_t most_parts = 64;
constexpr int most_levels = 8;

using Build = void (*)(const JsonNode&, int levels, TextSteps&);

void add(const JsonNode& node, int levels, TextSteps& steps);

SplitBehavior behavior_of(const JsonNode& node) {
  constexpr std::array<std::pair<const char*, SplitBehavior>, 5> names{{
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous},
  }};
  for (const auto& [name, behavior] : names)
    if (node.json == name) return behavior;
  node.refuse(
      "\"Removed\", \"Isolated\", \"MergedWithPrevious\", \"MergedWithNext\" or \"Contiguous\"");
}

void bert(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_split_characters(is_white_space, SplitBehavior::removed));
  steps.push_back(make_split_characters(is_punctuation, SplitBehavior::isolated));
}

void byte_level(const JsonNode& node, int, TextSteps& steps) {
  if (node["add_prefix_space"].flag(true)) steps.push_back(make_prefix_space());
  if (node["use_regex"].flag(true))
    steps.push_back(make_split_pattern(gpt2_pattern, node.path, SplitBehavior::isolated, false));
  steps.push_back(make_character_map(to_byte_characters));
}

void digits(const JsonNode& node, int, TextSteps& steps) {
  steps.push_back(make_split_characters(is_numeric, node["individual_digits"].flag(false)
                                                        ? SplitBehavior::isolated
                                                        : SplitBehavior::contiguous));
}

void metaspace(const JsonNode& node, int, TextSteps& steps) {
  const JsonNode replacement = node["replacement"];
  const PrependScheme scheme = read_prepend_scheme(node);
  if (scheme == PrependScheme::first && !steps.empty())
    node["prepend_scheme"].refuse("\"always\" or \"never\" after another pre-tokenizer");
  steps.push_back(make_metaspace(replacement.character(), scheme, node["split"].flag(true)));
}

void punctuation(const JsonNode& node, int, TextSteps& steps) {
  const JsonNode behavior = node["behavior"];
  steps.push_back(make_split_characters(
      is_punctuation, behavior.json.is_null() ? SplitBehavior::isolated : behavior_of(behavior)));
}

void split(const JsonNode& node, int, TextSteps& steps) {
  const SplitBehavior behavior = behavior_of(node["behavior"]);
  const bool invert = node["invert"].flag(false);
  const JsonNode pattern = node["pattern"];
  if (pattern.json.is_object() && pattern.json.contains("Regex")) {
    const JsonNode source = pattern["Regex"];
    steps.push_back(make_split_pattern(source.string(), source.path, behavior, invert));
    return;
  }
  if (!pattern.json.is_object() || pattern["String"].is_nothing())
    pattern.refuse("{\"String\": ...} or {\"Regex\": ...}");
  steps.push_back(make_split(pattern["String"].string(), behavior, invert));
}

void whitespace(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_whitespace());
}

void whitespace_split(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_split_characters(is_white_space, SplitBehavior::removed));
}

void sequence(const JsonNode& node, int levels, TextSteps& steps) {
  const JsonNode list = node["pretokenizers"];
  const std::size_t size = list.list_size(most_parts, "a list of at most 64 pre-tokenizers");
  for (std::size_t i = 0; i < size; ++i) add(list[i], levels - 1, steps);
}

constexpr std::array<JsonPart<Build>, 9> table{{
    {"BertPreTokenizer", bert},
    {"ByteLevel", byte_level},
    {"Digits", digits},
    {"Metaspace", metaspace},
    {"Punctuation", punctuation},
    {"Sequence", sequence},
    {"Split", split},
    {"Whitespace", whitespace},
    {"WhitespaceSplit", whitespace_split},
}};

void add(const JsonNode& node, int levels, TextSteps& steps) {
  if (levels == 0 || steps.size() > most_parts)
    node.refuse("at most 8 levels and 64 pre-tokenizers");
  part_of_type(node, table).build(node, levels, steps);
}

}  // namespace

TextSteps make_pre_tokenizer(const JsonNode& node) {
  TextSteps steps;
  if (!node.json.is_null()) add(node, most_levels, steps);
  return steps;
}

}  // namespace trireme::data
