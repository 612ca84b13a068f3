// The table of normalizers of a tokenizer.json.
#include <trireme/data/normalizers.hpp>

#include <trireme/data/character_maps.hpp>
#include <trireme/data/charsmap.hpp>
#include <trireme/data/normal_forms.hpp>
#include <trireme/data/text_edits.hpp>

#include <array>
#include <iterator>

namespace trireme::data {
namespace {

constexpr std::size_t most_parts = 64;
constexpr int most_levels = 8;

void add(const JsonNode& node, int levels, TextSteps& steps);

/// `Build` may read the node, and adds steps.
using Build = void (*)(const JsonNode&, int levels, TextSteps&);

template <NormalForm form>
void normal_form(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_normal_form(form));
}

template <void map(char32_t, std::string&)>
void characters(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_character_map(map));
}

void strip(const JsonNode& node, int, TextSteps& steps) {
  steps.push_back(make_strip(node["strip_left"].flag(true), node["strip_right"].flag(true)));
}

void prepend(const JsonNode& node, int, TextSteps& steps) {
  steps.push_back(make_prepend(node["prepend"].string()));
}

void replace(const JsonNode& node, int, TextSteps& steps) {
  const JsonNode pattern = node["pattern"];
  const std::string& content = node["content"].string();
  if (pattern.json.is_object() && pattern.json.contains("Regex")) {
    const JsonNode source = pattern["Regex"];
    steps.push_back(make_replace_pattern(source.string(), content, source.path));
    return;
  }
  if (!pattern.json.is_object() || pattern["String"].is_nothing())
    pattern.refuse("{\"String\": ...} or {\"Regex\": ...}");
  steps.push_back(make_replace(pattern["String"].string(), content));
}

void bert(const JsonNode& node, int, TextSteps& steps) {
  const bool lower = node["lowercase"].flag(true);
  if (node["clean_text"].flag(true)) steps.push_back(make_character_map(clean_for_bert));
  if (node["handle_chinese_chars"].flag(true))
    steps.push_back(make_character_map(separate_ideographs));
  if (node["strip_accents"].flag(lower)) {
    steps.push_back(make_normal_form(NormalForm::nfd));
    steps.push_back(make_character_map(without_nonspacing_marks));
  }
  if (lower) steps.push_back(make_character_map(lower_case));
}

void precompiled(const JsonNode& node, int, TextSteps& steps) {
  const JsonNode charsmap = node["precompiled_charsmap"];
  if (charsmap.is_nothing()) return;
  steps.push_back(make_precompiled(charsmap));
}

void byte_level(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_character_map(to_byte_characters));
}

void sequence(const JsonNode& node, int levels, TextSteps& steps) {
  const JsonNode list = node["normalizers"];
  const std::size_t size = list.list_size(most_parts, "a list of at most 64 normalizers");
  for (std::size_t i = 0; i < size; ++i) add(list[i], levels - 1, steps);
}

constexpr std::array<JsonPart<Build>, 14> table{{
    {"BertNormalizer", bert},
    {"ByteLevel", byte_level},
    {"Lowercase", characters<lower_case>},
    {"NFC", normal_form<NormalForm::nfc>},
    {"NFD", normal_form<NormalForm::nfd>},
    {"NFKC", normal_form<NormalForm::nfkc>},
    {"NFKD", normal_form<NormalForm::nfkd>},
    {"Nmt", characters<clean_for_nmt>},
    {"Precompiled", precompiled},
    {"Prepend", prepend},
    {"Replace", replace},
    {"Sequence", sequence},
    {"Strip", strip},
    {"StripAccents", characters<without_marks>},
}};

void add(const JsonNode& node, int levels, TextSteps& steps) {
  if (levels == 0 || steps.size() > most_parts) node.refuse("at most 8 levels and 64 normalizers");
  part_of_type(node, table).build(node, levels, steps);
}

}  // namespace

TextSteps make_normalizer(const JsonNode& node) {
  TextSteps steps;
  if (!node.json.is_null()) add(node, most_levels, steps);
  return steps;
}

}  // namespace trireme::data
