#include <trireme/data/instructions.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/data/token_file_writer.hpp>
#include <trireme/data/tokenize.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

/// The tokens with which a model that was trained on a file ends its answers.
namespace trireme::data {
namespace {

using testing::TemporaryFolder;
using TokenSet = std::set<std::int64_t>;

TokenSet ends_of(const std::string& input, const std::string& tokenizer, ChatFormat format) {
  const TemporaryFolder folder;
  TokenizeOptions options;
  options.inputs = {folder.write("in.jsonl", input)};
  options.output = folder.file("out.h5");
  options.tokenizer = golden_file(text("instructions/", tokenizer));
  options.chat = format;
  tokenize(options, [](auto) {});
  return answer_ends(TokenFile(options.output), *make_tokenizer(options.tokenizer));
}

TEST(AnswerEnds, AreTheEndOfTurnTokensOfTheFormat) {
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "1"},
{"role": "user", "content": "Two?"}, {"role": "assistant", "content": "2"}]})";
  std::string line = chat;
  std::ranges::replace(line, '\n', ' ');
  for (const auto& [format, tokenizer] : {std::pair(ChatFormat::chatml, "bpe.json"),
                                          {ChatFormat::llama3, "bpe.json"},
                                          {ChatFormat::gemma, "gemma.json"},
                                          {ChatFormat::mistral, "mistral.json"}}) {
    const auto made = make_tokenizer(golden_file(text("instructions/", tokenizer)));
    const std::int32_t end = made->special_token(end_of_answer(format));
    const TokenSet expected = end == made->end_of_document() ? TokenSet{} : TokenSet{end};
    EXPECT_EQ(ends_of(line + "\n", tokenizer, format), expected) << name_of(format);
  }
}

TEST(AnswerEnds, AreEmptyForCompletionsAndTexts) {
  EXPECT_EQ(ends_of("{\"prompt\": \"2 + 2 =\", \"completion\": \" 4\"}\n{\"text\": \"more\"}\n",
                    "bpe.json", ChatFormat::none),
            TokenSet{});
}

TEST(AnswerEnds, ExcludeOrdinaryTokensAndFilesWithoutAMask) {
  const auto tokenizer = make_tokenizer(golden_file("instructions/bpe.json"));
  const std::int32_t end = tokenizer->end_of_document();
  const std::int32_t turn = tokenizer->special_token("<|im_end|>");
  for (const bool mask : {true, false}) {
    const TemporaryFolder folder;
    TokenFileWriter writer(folder.file("t.h5"), tokenizer->name(), tokenizer->vocabulary());
    writer.append(std::array{std::int32_t{1}, std::int32_t{2}});
    writer.append(std::array{std::int32_t{3}}, !mask);
    writer.append(std::array{turn});
    writer.append(std::array{end}, !mask);
    writer.end_document(4);
    writer.commit("test");
    EXPECT_EQ(answer_ends(TokenFile(folder.file("t.h5")), *tokenizer),
              mask ? TokenSet{turn} : TokenSet{});
  }
}

}  // namespace
}  // namespace trireme::data
