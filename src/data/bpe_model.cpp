// Reads tokenizer.json or vocab.json and merges.txt into a BpeModel, and writes tokenizer.json.
// Features that are not implemented are refused.
#include <trireme/data/bpe_model.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/bpe_vocabulary.hpp>
#include <trireme/data/utf8.hpp>
#include <trireme/io/input_file.hpp>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <sstream>

namespace trireme::data {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t file_limit_bytes = 256 << 20;

bool is_shallow(const Json& json, int levels) {
  if (!json.is_structured()) return true;
  if (levels == 0 || json.size() > 100) return false;
  for (const auto& part : json)
    if (!is_shallow(part, levels - 1)) return false;
  return true;
}

/// A value of the file and its path, for messages.
struct Node {
  const Json& json;
  std::string path;  // "tokenizer.json: model.type"

  /// The member, or null if it is missing.
  Node operator[](const char* key) const {
    static const Json nothing;
    const bool top = path.ends_with(": ");
    const auto found = json.is_object() ? json.find(key) : json.end();
    const bool there = json.is_object() && found != json.end();
    return {there ? *found : nothing, path + (top ? "" : ".") + key};
  }
  [[noreturn]] void refuse(const std::string& supported) const {
    std::string value =  // dump() recurses
        is_shallow(json, 4) ? json.dump(-1, ' ', false, Json::error_handler_t::replace)
                            : text("(", json.type_name(), " of ", json.size(), " parts)");
    if (value.size() > 100) value = value.substr(0, 100) + "...";
    throw UsageError(text(path, " = ", value, " is not supported; expected ", supported));
  }
  bool is_nothing() const {
    return json.is_null() || (json.is_string() && json.get_ref<const std::string&>().empty());
  }
  void expect_nothing() const {
    if (!is_nothing()) refuse("null");
  }
  bool flag(bool otherwise) const {
    if (json.is_null()) return otherwise;
    if (!json.is_boolean()) refuse("true or false");
    return json.get<bool>();
  }
  void expect_false() const {
    if (flag(false)) refuse("false");
  }
  const std::string& string() const {
    if (!json.is_string()) refuse("a string");
    return json.get_ref<const std::string&>();
  }
  void expect_type(const char* type) const {
    const Node member = (*this)["type"];
    if (member.json != type) member.refuse(text('"', type, '"'));
  }
  std::int64_t id() const {
    if (!json.is_number_integer() || json.get<std::int64_t>() < 0) refuse("an id");
    return json.get<std::int64_t>();
  }
};

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
  if (!node.json.is_array()) node.refuse("a list");
  for (std::size_t i = 0; i < node.json.size(); ++i) {
    const Node merge{node.json[i], text(node.path, "[", i, "]")};
    if (merge.json.is_string()) {
      vocabulary.add_merge(merge.string(), merge.path);
      continue;
    }
    if (!merge.json.is_array() || merge.json.size() != 2 || !merge.json[0].is_string() ||
        !merge.json[1].is_string())
      merge.refuse("two tokens");
    vocabulary.add_merge(merge.json[0].get<std::string>(), merge.json[1].get<std::string>(),
                         merge.path);
  }
}

void read_tokens(const Node& node, BpeVocabulary& vocabulary) {
  if (!node.json.is_object()) node.refuse("an object of tokens and ids");
  for (const auto& [token, id] : node.json.items())
    vocabulary.add_token(token, Node{id, text(node.path, ".", token)}.id(), node.path);
}

void read_added(const Node& node, BpeVocabulary& vocabulary) {
  if (node.json.is_null()) return;
  if (!node.json.is_array()) node.refuse("a list");
  for (std::size_t i = 0; i < node.json.size(); ++i) {
    const Node entry{node.json[i], text(node.path, "[", i, "]")};
    AddedToken token;
    token.content = entry["content"].string();
    if (token.content.empty()) continue;
    token.special = entry["special"].flag(false);
    token.normalized = entry["normalized"].flag(!token.special);
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      if (!token.special) entry[key].expect_false();
      token.strips = token.strips || entry[key].flag(false);
    }
    vocabulary.add_added(std::move(token), entry["id"].id(), entry.path);
  }
}

BpeModel read_folder(const std::string& folder) {
  const std::string vocab = folder + "/vocab.json";
  const std::string merges = folder + "/merges.txt";
  BpeVocabulary vocabulary;
  const Json json = Json::parse(io::read_text_file(vocab, file_limit_bytes), nullptr, false);
  check_usage(!json.is_discarded(), vocab, ": is not JSON");
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

}  // namespace

BpeModel parse_tokenizer_json(const std::string& content, const std::string& path) {
  const Json json = Json::parse(content, nullptr, false);
  check_usage(!json.is_discarded() && json.is_object(), path, ": is not a JSON object");
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

BpeModel read_bpe(const std::string& path) {
  if (!std::filesystem::is_directory(path))
    return parse_tokenizer_json(io::read_text_file(path, file_limit_bytes), path);
  const std::string json = path + "/tokenizer.json";
  if (std::filesystem::exists(json))
    return parse_tokenizer_json(io::read_text_file(json, file_limit_bytes), json);
  check_usage(std::filesystem::exists(path + "/vocab.json"), path,
              ": has neither a tokenizer.json nor a vocab.json");
  return read_folder(path);
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
    vocab += text(id > 0 ? ",\n" : "\n", "      ", Json(names[id]).dump(), ": ", id);
  std::string merges;
  for (std::size_t i = 0; i < model.merges.size(); ++i)
    merges += text(i > 0 ? ",\n" : "\n", "      [",
                   Json(names[static_cast<std::size_t>(model.merges[i].left)]).dump(), ", ",
                   Json(names[static_cast<std::size_t>(model.merges[i].right)]).dump(), "]");
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
