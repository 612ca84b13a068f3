// The tokens that a tokenizer puts before a text, such as Llama's <s>.
#include <trireme/data/post_processor.hpp>

#include <trireme/data/token_names.hpp>

#include <array>

namespace trireme::data {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t most_parts = 256;

std::int32_t id_of(const JsonNode& node) {
  return static_cast<std::int32_t>(node.count(TokenNames::id_limit - 1));
}

Ids nothing(const JsonNode&) {
  return {};
}

/// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens":
/// {"<s>": {"ids": [1]}}}
Ids from_template(const JsonNode& node) {
  Ids ids;
  const JsonNode parts = node["single"];
  const std::size_t size = parts.list_size(most_parts, "a list of special tokens and a sequence");
  for (std::size_t i = 0; i < size; ++i) {
    const JsonNode token = parts[i]["SpecialToken"];
    if (token.json.is_null()) return ids;  // the text
    const JsonNode of_name = node["special_tokens"][token["id"].string().c_str()]["ids"];
    const std::size_t count = of_name.list_size(most_parts, "a list of ids");
    for (std::size_t k = 0; k < count; ++k) ids.push_back(id_of(of_name[k]));
  }
  return ids;
}

/// {"cls": ["[CLS]", 101]}
Ids from_pair(const JsonNode& node) {
  const JsonNode token = node["cls"];
  if (token.list_size(2, "a token and its id") != 2) token.refuse("a token and its id");
  return {id_of(token[1])};
}

/// Later parts put their tokens before those of earlier ones.
Ids from_sequence(const JsonNode& node) {
  Ids ids;
  const JsonNode parts = node["processors"];
  const std::size_t size = parts.list_size(16, "a list of post-processors");
  for (std::size_t i = 0; i < size; ++i) {
    if (parts[i]["type"].json == "Sequence") parts[i].refuse("no Sequence in a Sequence");
    const Ids before = ids_before_text(parts[i]);
    ids.insert(ids.begin(), before.begin(), before.end());
  }
  return ids;
}

constexpr std::array<JsonPart<Ids (*)(const JsonNode&)>, 5> kinds{{
    {"ByteLevel", nothing},
    {"TemplateProcessing", from_template},
    {"BertProcessing", from_pair},
    {"RobertaProcessing", from_pair},
    {"Sequence", from_sequence},
}};

}  // namespace

std::vector<std::int32_t> ids_before_text(const JsonNode& post_processor) {
  if (post_processor.json.is_null()) return {};
  return part_of_type(post_processor, kinds).build(post_processor);
}

}  // namespace trireme::data
