#include <trireme/base/text.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <support/shell.hpp>

#include <filesystem>
#include <string>

namespace trireme::commands {
namespace {

using namespace trireme::testing;

TEST(TokenCommands, TokenizeInspectAndDecodeAgree) {
  const TemporaryFolder folder;
  folder.write("text", "one\n\ntwo\n\nthree");
  ASSERT_EQ(shell(folder,
                  "gzip text && trireme tokenize -o t.h5 --document-separator '\\n\\n' "
                  "text.gz"),
            0);
  expect_output(folder, "t.h5: 14 tokens in 3 documents (11 bytes of text)");
  ASSERT_EQ(shell(folder, "trireme inspect --verify t.h5"), 0);
  expect_output(folder, "documents   3\n");
  expect_output(folder, "sources     text.gz\n");
  expect_output(folder, "verified ");
  ASSERT_EQ(shell(folder, "trireme inspect --decode t.h5"), 0);
  EXPECT_EQ(read_file(folder.file("out")), "onetwothree");
}

TEST(TokenCommands, JsonHoldsTheFactsOfTheText) {
  const TemporaryFolder folder;
  folder.write("text", "one\n\ntwo\n\nthree");
  ASSERT_EQ(shell(folder,
                  "trireme tokenize -o t.h5 --document-separator '\\n\\n' --json facts.json text"),
            0);
  expect_output(folder, "t.h5: 14 tokens in 3 documents");
  auto json = nlohmann::json::parse(read_file(folder.file("facts.json")));
  EXPECT_EQ(json.at("train").at("tokens"), 14);
  EXPECT_EQ(json.at("train").at("documents"), 3);
  EXPECT_EQ(json.at("train").at("path"), "t.h5");
  EXPECT_EQ(json.at("files"), 1);
  EXPECT_TRUE(json.at("validation").is_null());
  ASSERT_EQ(shell(folder, "trireme inspect --verify --json - t.h5"), 0);
  json = nlohmann::json::parse(read_file(folder.file("out")));
  EXPECT_EQ(json.at("kind"), "token file");
  EXPECT_EQ(json.at("tokens"), 14);
  EXPECT_EQ(json.at("sources"), nlohmann::json::array({"text"}));
  EXPECT_EQ(json.at("verified"), true);
  EXPECT_EQ(shell(folder, "trireme inspect --json missing/facts.json t.h5"), 2);
  expect_error(folder, "missing/facts.json: cannot be written");
  EXPECT_EQ(shell(folder, "trireme inspect --json - nothing.h5"), 2);
  expect_error(folder, "nothing.h5: no such file");
}

TEST(TokenCommands, DecodeStopsQuietlyOnAClosedPipe) {
  const TemporaryFolder folder;
  folder.write("text", std::string(1 << 20, 'a'));
  ASSERT_EQ(shell(folder, "trireme tokenize -o t.h5 - < text"), 0);
  ASSERT_EQ(shell(folder, "{ trireme inspect --decode t.h5; echo $? >code; } | head -c 3"), 0);
  EXPECT_EQ(read_file(folder.file("out")), "aaa");
  EXPECT_EQ(read_file(folder.file("err")), "");
  EXPECT_EQ(read_file(folder.file("code")), "0\n");
}

TEST(TokenCommands, FindOrNameALearnedTokenizer) {
  const TemporaryFolder folder;
  folder.write("text", "low lower lowest\n\nnew newer newest low\n\n<|endoftext|>");
  const std::string tokenize = "trireme tokenize --document-separator '\\n\\n' ";
  ASSERT_EQ(shell(folder, tokenize + "-o d/t.h5 --train-bpe 265 text"), 0);
  expect_output(folder, "d/tokenizer.json: 265 ids");
  ASSERT_EQ(shell(folder, tokenize + "-o again.h5 --tokenizer d/tokenizer.json text"), 0);
  EXPECT_EQ(shell(folder, "cmp d/t.h5 again.h5"), 0) << "learning it gives the tokens it gives";
  ASSERT_EQ(shell(folder, "trireme inspect d/t.h5"), 0);
  expect_output(folder, "tokenizer   bpe-");
  expect_output(folder, "d/tokenizer.json");
  const std::string expected = "low lower lowestnew newer newest low<|endoftext|>";
  ASSERT_EQ(shell(folder, "trireme inspect --decode d/t.h5"), 0);
  EXPECT_EQ(read_file(folder.file("out")), expected);
  ASSERT_EQ(shell(folder, "mv d e && trireme inspect --decode e/t.h5"), 0) << "beside the file";
  EXPECT_EQ(read_file(folder.file("out")), expected);
  EXPECT_EQ(shell(folder, "mv e/tokenizer.json t && trireme inspect --decode e/t.h5"), 2);
  expect_error(folder, "no longer in d/tokenizer.json");
  ASSERT_EQ(shell(folder, "trireme inspect --decode --tokenizer t e/t.h5"), 0);
  EXPECT_EQ(read_file(folder.file("out")), expected);
  ASSERT_EQ(shell(folder, tokenize + "-o x/t.h5 --train-bpe 260 text"), 0);
  EXPECT_EQ(shell(folder, "trireme inspect --decode --tokenizer x e/t.h5"), 2);
  expect_error(folder, "but x is bpe-");
}

TEST(TokenCommands, InspectShowsAndDecodesMegatronFiles) {
  const TemporaryFolder folder;
  folder.write("p.bin", std::string("h\0i\0", 4));
  std::string idx("MMIDIDX\0\0\1\0\0\0\0\0\0\0\10", 18);
  idx += std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16);  // sequences, entries
  idx += std::string("\2\0\0\0\0\0\0\0\0\0\0\0", 12);          // size, pointer
  idx += std::string("\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", 16);  // documents
  folder.write("p.idx", idx);
  ASSERT_EQ(shell(folder, "trireme inspect --verify p"), 0);
  expect_output(folder, "format      Megatron-LM token file, ids of 2 bytes");
  EXPECT_EQ(shell(folder, "trireme inspect --decode p.idx"), 2);
  expect_error(folder, "give it with --tokenizer PATH");
  ASSERT_EQ(shell(folder, "trireme inspect --decode --tokenizer bytes p.idx"), 0);
  EXPECT_EQ(read_file(folder.file("out")), "hi");
}

/// An image as a NumPy array, which every build reads.
std::string array_of_image(int height, int width) {
  using namespace std::string_literals;
  std::string header =
      text("{'descr': '|u1', 'fortran_order': False, 'shape': (", height, ", ", width, ", 3), }");
  header.resize(117, ' ');
  std::string pixels;
  for (int i = 0; i < height * width * 3; ++i) pixels += static_cast<char>(i * 37);
  return "\x93NUMPY\x01\0\x76\0"s + header + "\n" + pixels;
}

TEST(TokenCommands, ImagesOfJsonLinesAreStoredShownAndVerified) {
  const TemporaryFolder folder;
  folder.write("a.npy", array_of_image(9, 14));
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += R"({"image": "../a.npy", "prompt": "See <image> here?", "completion": " Yes"})"
             "\n";
  std::filesystem::create_directory(folder.file("in"));
  folder.write("in/lines.jsonl", lines);
  const std::string tokenize = "trireme tokenize -o t.h5 --train-bpe 260 in/lines.jsonl ";
  ASSERT_EQ(shell(folder, tokenize + "--images 8 --image-tokens 4 --image-fit pad"), 0);
  expect_output(folder, "t.h5: 20 images\n");
  ASSERT_EQ(shell(folder, "trireme inspect --verify t.h5"), 0);
  expect_output(folder, "format      token file, version 3\n");
  expect_output(folder,
                "images      20 (1 distinct) of 8 x 8 pixels, at most 1 in a document, each for 4 "
                "tokens of id 1, with --image-fit pad and bicubic-pillow12\n");
  expect_output(folder, "all checksums match");
  ASSERT_EQ(shell(folder, "trireme inspect --decode t.h5"), 0);
  expect_output(folder, R"("text":"See <image> here?"})");
  ASSERT_EQ(shell(folder, "trireme inspect --json - t.h5"), 0);
  expect_output(folder, R"("tokens_per_image": 4)");
  EXPECT_EQ(shell(folder, tokenize + "--images 8"), 2);
  expect_error(folder, "--image-tokens N");
  EXPECT_EQ(shell(folder, tokenize + "--image-tokens 4"), 2);
  expect_error(folder, "--images");
  EXPECT_EQ(shell(folder, tokenize + "--images 8 --image-tokens 4 --image-fit squeeze"), 2);
  expect_error(folder, "{crop,stretch,pad}");
  EXPECT_EQ(shell(folder, tokenize), 2);
  expect_error(folder, "in/lines.jsonl:1: has the member \"image\"");
  EXPECT_EQ(shell(folder, "rm a.npy && " + tokenize + "--images 8 --image-tokens 4"), 2);
  expect_error(folder, "in/lines.jsonl:1: in/../a.npy");
  folder.write("deck.toml",
               "[run]\nsteps = 20\n[model]\nfamily = \"llama\"\nlayers = 1\nhidden = 32\n"
               "heads = 2\nsequence = 16\nvocabulary = 260\n[batch]\nglobal = 4\nmicro = 4\n"
               "[optimizer]\nlearning_rate = 1e-2\n[data]\ntrain = \"t.h5\"\n"
               "tokenizer = \"tokenizer.json\"\n");
  EXPECT_EQ(shell(folder, "trireme check deck.toml"), 2);
  expect_error(folder, "t.h5: has images, which this deck's model does not see");
}

TEST(TokenCommands, CheckShowsEpochsOfEachFileOfABlend) {
  const TemporaryFolder folder;
  folder.write(
      "deck.toml",
      "[run]\nsteps = 20\n[model]\nfamily = \"llama\"\nlayers = 1\nhidden = 32\nheads = 2\n"
      "sequence = 16\nvocabulary = 257\n[batch]\nglobal = 4\nmicro = 4\n"
      "[optimizer]\nlearning_rate = 1e-2\n[data]\ntrain = \"1 a.h5, 1 b.h5\"\n");
  folder.write("a", std::string(160, 'a'));  // 161 tokens: 10 windows
  folder.write("b", std::string(640, 'b'));
  ASSERT_EQ(shell(folder, "trireme tokenize a -o a.h5 && trireme tokenize b -o b.h5"), 0);
  ASSERT_EQ(shell(folder, "trireme check deck.toml"), 0);
  expect_output(folder, "blend         a.h5: 40 of the run's 80 samples, 4.00 epochs of 10\n");
  expect_output(folder, "blend         b.h5: 40 of the run's 80 samples, 1.00 epochs of 40\n");
  ASSERT_EQ(shell(folder, "trireme check deck.toml 'data.train=3 a.h5, 1 b.h5' run.steps=10"), 0);
  expect_output(folder, "blend         a.h5: 30 of the run's 40 samples, 3.00 epochs of 10\n");
  ASSERT_EQ(shell(folder, "trireme check deck.toml data.train=a.h5 && ! grep blend out"), 0);
}

TEST(TokenCommands, MistakesGiveExitCodeTwoAndDamageOne) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell(folder, "trireme tokenize -o t.h5 missing"), 2);
  expect_error(folder, "trireme: error: missing: no such file or folder");
  EXPECT_EQ(shell(folder, "trireme tokenize -o t.h5 --validation-fraction 0.1 missing"), 2);
  EXPECT_EQ(shell(folder, "trireme inspect missing"), 2);
  EXPECT_EQ(shell(folder, "trireme inspect script"), 2);
  expect_error(folder, "is not a token file");
  EXPECT_EQ(shell(folder, "trireme inspect ."), 2);
  ASSERT_EQ(shell(folder, "echo text | trireme tokenize -o t.h5 -"), 0);
  auto bytes = read_file(folder.file("t.h5"));
  bytes.pop_back();
  folder.write("t.h5", bytes);
  EXPECT_EQ(shell(folder, "trireme inspect t.h5"), 1);
  expect_error(folder, "truncated");
}

}  // namespace
}  // namespace trireme::commands
