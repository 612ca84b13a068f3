// Reads tokenizer.json or vocab.json and merges.txt into a BpeModel, and writes tokenizer.json.
// Features that are not implemented are refused.
#include <trireme/data/bpe_model.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/json_mistake.hpp>
#include <trireme/data/bpe_vocabulary.hpp>
#include <trireme/data/json_node.hpp>
#include <trireme/data/token_model.hpp>
#include <trireme/data/utf8.hpp>
#include <trireme/io/input_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

namespace trireme::data {
namespace {

using Node = JsonNode;

void read_byte_level(const Node& node, BpeModel& model) {
  model.add_prefix_space = node["add_prefix_space"].flag(true);
  if (node["use_regex"].flag(true)) model.patterns.emplace_back(gpt2_pattern);
}

void read_split(const Node& node, BpeModel& model) {
  node.expect_type("Split");
  const Node behavior = node["behavior"];
  if (behavior.json != "Isolated") behavior.refuse("\"Isolated\"");
  node["invert"].expect_false();
  const Node pattern = node["pattern"];
  if (!pattern.json.is_object() || !pattern.json.contains("Regex"))
    pattern.refuse("{\"Regex\": ...}");
  model.patterns.push_back(pattern["Regex"].string());
}

void read_pre_tokenizer(const Node& node, BpeModel& model) {
  if (node["type"].json == "ByteLevel") return read_byte_level(node, model);
  if (node["type"].json != "Sequence")
    node["type"].refuse("\"ByteLevel\" or \"Sequence\" of Split and ByteLevel");
  const Node list = node["pretokenizers"];
  if (!list.json.is_array() || list.json.empty() || list.json.size() > 16)
    list.refuse("a list of Split, with ByteLevel last");
  for (std::size_t i = 0; i < list.json.size(); ++i) {
    const Node part{list.json[i], text(list.path, "[", i, "]")};
    if (i + 1 < list.json.size()) {
      read_split(part, model);
      continue;
    }
    part.expect_type("ByteLevel");
    read_byte_level(part, model);
    if (model.add_prefix_space && i > 0) part["add_prefix_space"].refuse("false after a Split");
  }
}

void read_merges(const Node& node, BpeVocabulary& vocabulary) {
  read_merge_list(node, [&](const std::string& left, const std::string& right, const Node& merge) {
    vocabulary.add_merge(left, right, merge.path);
  });
}

void read_tokens(const Node& node, BpeVocabulary& vocabulary) {
  if (!node.json.is_object()) node.refuse("an object of tokens and ids");
  for (const auto& [token, id] : node.json.items())
    vocabulary.add_token(token, Node{id, text(node.path, ".", token)}.id(), node.path);
}

void read_added(const Node& node, BpeVocabulary& vocabulary) {
  std::size_t i = 0;
  for (AddedToken& token : read_added_tokens(node)) {
    const std::int64_t id = token.id;
    vocabulary.add_added(std::move(token), id, text(node.path, "[", i++, "]"));
  }
}

/// Whether it is a Split whose matches and gaps are words.
bool is_isolating(const nlohmann::json& splitter) {
  if (!splitter.is_object() || splitter.value("type", nlohmann::json()) != "Split") return false;
  const nlohmann::json pattern = splitter.value("pattern", nlohmann::json());
  return pattern.is_object() && pattern.contains("Regex") &&
         splitter.value("behavior", nlohmann::json()) == "Isolated" &&
         splitter.value("invert", nlohmann::json(false)) == false;
}

}  // namespace

bool is_byte_level(const nlohmann::json& json) {
  static const nlohmann::json nothing;
  const auto member = [](const nlohmann::json& of, const char* key) -> const nlohmann::json& {
    const auto found = of.is_object() ? of.find(key) : of.end();
    return of.is_object() && found != of.end() ? *found : nothing;
  };
  const auto type_of = [&](const char* key) -> const nlohmann::json& {
    return member(member(json, key), "type");
  };
  if (type_of("model") != "BPE" || !member(json, "normalizer").is_null()) return false;
  if (member(json.at("model"), "byte_fallback") == true) return false;
  if (!member(json, "decoder").is_null() && type_of("decoder") != "ByteLevel") return false;
  if (type_of("pre_tokenizer") == "ByteLevel") return true;
  const nlohmann::json& list = member(member(json, "pre_tokenizer"), "pretokenizers");
  if (type_of("pre_tokenizer") != "Sequence" || !list.is_array() || list.empty()) return false;
  return member(list.back(), "type") == "ByteLevel" &&
         (list.size() == 1 || member(list.back(), "add_prefix_space") == false) &&
         std::all_of(list.begin(), list.end() - 1, is_isolating);
}

BpeModel read_byte_level_bpe(const nlohmann::json& json, const std::string& path) {
  const Node top{json, path + ": "};
  const Node model = top["model"];
  model.expect_type("BPE");
  if (!model["dropout"].json.is_null() && model["dropout"].json != 0.0)
    model["dropout"].refuse("null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    model[key].expect_nothing();
  model["byte_fallback"].expect_false();
  for (const char* key : {"normalizer", "truncation", "padding"}) top[key].expect_nothing();
  if (!top["decoder"].json.is_null()) top["decoder"].expect_type("ByteLevel");
  BpeVocabulary vocabulary;
  read_tokens(model["vocab"], vocabulary);
  read_merges(model["merges"], vocabulary);
  read_added(top["added_tokens"], vocabulary);
  if (!model["unk_token"].is_nothing() && !vocabulary.has_all_bytes())
    model["unk_token"].refuse("null, because the vocabulary does not have all 256 bytes");
  BpeModel result = vocabulary.take(path);
  result.ignore_merges = model["ignore_merges"].flag(false);
  read_pre_tokenizer(top["pre_tokenizer"], result);
  return result;
}

BpeModel parse_tokenizer_json(const std::string& content, const std::string& path) {
  const nlohmann::json json = nlohmann::json::parse(content, nullptr, false);
  check_usage(!json.is_discarded() && json.is_object(), path, ": is not a JSON object");
  return read_byte_level_bpe(json, path);
}

BpeModel read_bpe_folder(const std::string& folder) {
  const std::string vocab = folder + "/vocab.json";
  const std::string merges = folder + "/merges.txt";
  BpeVocabulary vocabulary;
  const std::string content = io::read_text_file(vocab, file_limit_bytes);
  const nlohmann::json json = nlohmann::json::parse(content, nullptr, false);
  check_usage(!json.is_discarded(), vocab, ": is not JSON: ", json_mistake(content));
  read_tokens({json, vocab + ": "}, vocabulary);
  std::istringstream lines(io::read_text_file(merges, file_limit_bytes));
  std::string line;
  for (std::int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    vocabulary.add_merge(line, text(merges, ":", number));
  }
  vocabulary.add_end_of_text();
  BpeModel model = vocabulary.take(vocab);
  model.patterns.emplace_back(gpt2_pattern);
  return model;
}

std::string tokenizer_json(const BpeModel& model) {
  using Ordered = nlohmann::ordered_json;
  std::vector<std::string> names;
  std::vector<bool> special(model.tokens.size());
  Ordered added = Ordered::array();
  for (const auto& token : model.added) {
    special[static_cast<std::size_t>(token.id)] = true;
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  for (std::size_t id = 0; id < model.tokens.size(); ++id)
    names.push_back(special[id] ? model.tokens[id] : characters_of_bytes(model.tokens[id]));
  // One token and one merge per line; the library would write each part of a merge on its own line.
  std::string vocab;
  for (std::size_t id = 0; id < names.size(); ++id)
    vocab += text(id > 0 ? ",\n" : "\n", "      ", nlohmann::json(names[id]).dump(), ": ", id);
  std::string merges;
  for (std::size_t i = 0; i < model.merges.size(); ++i)
    merges +=
        text(i > 0 ? ",\n" : "\n", "      [",
             nlohmann::json(names[static_cast<std::size_t>(model.merges[i].left)]).dump(), ", ",
             nlohmann::json(names[static_cast<std::size_t>(model.merges[i].right)]).dump(), "]");
  const std::string byte_level =
      text("{\"type\": \"ByteLevel\", \"add_prefix_space\": ", model.add_prefix_space,
           ", \"trim_offsets\": true, \"use_regex\": true}");
  return text("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n",
              "  \"added_tokens\": ", added.dump(), ",\n  \"normalizer\": null,\n",
              "  \"pre_tokenizer\": ", byte_level, ",\n  \"post_processor\": null,\n",
              "  \"decoder\": ", byte_level, ",\n  \"model\": {\n    \"type\": \"BPE\",\n",
              "    \"dropout\": null,\n    \"unk_token\": null,\n",
              "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n",
              "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n",
              "    \"ignore_merges\": ", model.ignore_merges, ",\n    \"vocab\": {", vocab,
              "\n    },\n    \"merges\": [", merges, "\n    ]\n  }\n}\n");
}

}  // namespace trireme::data
