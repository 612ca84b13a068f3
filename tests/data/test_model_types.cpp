// Files without model.type, as `tokenizers` before 0.9 wrote them. The expected ids and types are
// those of `tokenizers` 0.23.3 for the same files.
#include <trireme/data/token_model.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/data/tokenizer_json.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

namespace trireme::data {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;

const std::string vocab_member = R"("vocab": {"a": 0, "b": 1, "ab": 2, "[UNK]": 3})";
const std::string list_member = R"("vocab": [["a", -1], ["b", -2.0], [" ", -1]])";
const std::string merges_member = R"("merges": ["#version: 0.2", "a b"])";
const std::string pair_merges_member = R"("merges": [["a", "b"]])";
const std::string unknown_member = R"("unk_token": "[UNK]")";
const std::string prefix_member = R"("continuing_subword_prefix": "##")";
const std::string longest_member = R"("max_input_chars_per_word": 100)";

std::string type_of(const std::string& model) {
  Json top = Json::parse(R"({"model": {)" + model + "}}");
  add_model_type(top);
  return top["model"].value("type", "none");
}

TEST(ModelTypes, FollowFromTheMembers) {
  EXPECT_EQ(type_of(vocab_member + "," + merges_member), "BPE");
  EXPECT_EQ(type_of(vocab_member + "," + pair_merges_member), "BPE");
  EXPECT_EQ(
      type_of(vocab_member + "," + unknown_member + "," + prefix_member + "," + longest_member),
      "WordPiece");
  EXPECT_EQ(type_of(vocab_member + "," + unknown_member + "," + prefix_member + "," +
                    longest_member + R"(,"merges": null)"),
            "WordPiece");
  EXPECT_EQ(type_of(vocab_member + "," + unknown_member + "," + longest_member), "WordLevel");
  EXPECT_EQ(type_of(vocab_member + "," + unknown_member), "WordLevel");
  EXPECT_EQ(type_of(list_member + R"(,"unk_id": 0)"), "Unigram");
  EXPECT_EQ(type_of(list_member + R"(,"unk_id": null)"), "Unigram");
  EXPECT_EQ(type_of(list_member), "Unigram");
  EXPECT_EQ(type_of(vocab_member), "none");
  EXPECT_EQ(type_of(merges_member), "none");
}

TEST(ModelTypes, AnExplicitTypeIsKept) {
  EXPECT_EQ(type_of(R"("type": "Unigram",)" + vocab_member + "," + merges_member), "Unigram");
  Json top = Json::parse(R"({"model": {"type": null,)" + vocab_member + "," + merges_member + "}}");
  add_model_type(top);
  EXPECT_TRUE(top["model"]["type"].is_null());
}

Ids ids_of(const std::string& model, const std::string& rest = "") {
  const std::string file = R"({"added_tokens": [{"id": 9, "content": "</s>", "special": true}],)" +
                           rest + R"("model": {)" + model + "}}";
  Ids ids;
  parse_tokenizer(file, "old.json", "")->encode("a ab", ids);
  return ids;
}

TEST(ModelTypes, IdsMatchFilesWithAnExplicitType) {
  const Ids bpe{0, 2};
  EXPECT_EQ(ids_of(vocab_member + "," + merges_member), bpe);
  EXPECT_EQ(ids_of(vocab_member + "," + pair_merges_member + R"(,"dropout": null)"), bpe);
  EXPECT_EQ(
      ids_of(vocab_member + "," + pair_merges_member + R"(,"dropout": 0.0, "fuse_unk": false)"),
      bpe);
  EXPECT_EQ(ids_of(vocab_member + "," + merges_member, R"("normalizer": null, "decoder": null,)"),
            bpe);
  EXPECT_EQ(
      ids_of(vocab_member + "," + unknown_member + "," + prefix_member + "," + longest_member),
      Ids{3});
  EXPECT_EQ(ids_of(list_member + R"(,"unk_id": 0)"), (Ids{0, 2, 0, 1}));
  EXPECT_EQ(ids_of(list_member), (Ids{0, 2, 0, 1}));
}

TEST(ModelTypes, RejectTrailingText) {
  const auto error = [](const std::string& file) {
    return message_of([&] { parse_tokenizer(file, "old.json", ""); });
  };
  expect_mentions(error("{\"model\": {}}\n{}"),
                  {"old.json: is not JSON: line 2, column 1: unexpected '{'"});
  expect_mentions(error("{\"model\": {"), {"column 12: the text ends within a value"});
}

TEST(ModelTypes, ReportUnsupportedTypes) {
  expect_mentions(message_of([] { ids_of(vocab_member + "," + unknown_member); }),
                  {"old.json: model.type = \"WordLevel\" is not supported"});
  expect_mentions(message_of([] { ids_of(vocab_member); }),
                  {"old.json: model.type = null is not supported", "\"BPE\""});
}

}  // namespace
}  // namespace trireme::data
