#include <trireme/base/check.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/data/instructions.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/data/tokenize.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

/// Instruction data: ids and counted tokens against transformers (tests/golden/instructions).
namespace trireme::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using Json = nlohmann::json;

struct Line {
  std::vector<std::int32_t> ids;
  std::vector<int> counted;
};

/// The documents of a file, the last token of each left out if it only ends the document.
std::vector<Line> lines_of(const std::string& path, std::int32_t end) {
  const TokenFile file(path);
  file.verify();
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(file.documents() + 1));
  file.read_document_offsets(0, offsets);
  std::vector<Line> lines;
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
    Line line;
    line.ids.resize(static_cast<std::size_t>(offsets[d + 1] - offsets[d]));
    file.read(offsets[d], line.ids);
    std::vector<std::int32_t> mask = line.ids;
    file.mask(offsets[d], mask);
    for (const std::int32_t id : mask) line.counted.push_back(id == uncounted ? 0 : 1);
    EXPECT_EQ(line.ids.back(), end);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<Line> golden_lines(const std::string& name) {
  std::vector<Line> lines;
  const Json all = Json::parse(read_file(golden_file("instructions/golden.json")));
  for (const Json& pair : all[name])
    lines.push_back({pair[0].get<std::vector<std::int32_t>>(), pair[1].get<std::vector<int>>()});
  return lines;
}

TokenizeOptions options_of(const TemporaryFolder& folder, const std::string& input,
                           const std::string& tokenizer, ChatFormat chat = ChatFormat::none) {
  TokenizeOptions o;
  o.inputs = {input};
  o.output = folder.file("out.h5");
  o.tokenizer = tokenizer;
  o.chat = chat;
  return o;
}

struct ChatCase {
  ChatFormat format;
  const char* tokenizer;
};

class ChatFormats : public ::testing::TestWithParam<ChatCase> {};
INSTANTIATE_TEST_SUITE_P(All, ChatFormats,
                         ::testing::Values(ChatCase{ChatFormat::chatml, "bpe.json"},
                                           ChatCase{ChatFormat::llama3, "bpe.json"},
                                           ChatCase{ChatFormat::mistral, "mistral.json"},
                                           ChatCase{ChatFormat::gemma, "gemma.json"}),
                         [](const auto& c) { return std::string(name_of(c.param.format)); });

TEST_P(ChatFormats, IdsAndCountedTokensMatchTransformers) {
  const TemporaryFolder folder;
  std::string conversations = read_file(golden_file("instructions/conversations.jsonl"));
  if (GetParam().format == ChatFormat::gemma)
    conversations.resize(conversations.find("{\"messages\": [{\"role\": \"system\""));
  const auto input = folder.write("chats.jsonl", conversations);
  const std::string tokenizer = golden_file(text("instructions/", GetParam().tokenizer));
  const auto summary =
      tokenize(options_of(folder, input, tokenizer, GetParam().format), [](auto) {});
  const std::int32_t end = make_tokenizer(tokenizer)->end_of_document();
  const auto found = lines_of(folder.file("out.h5"), end);
  const auto expected = golden_lines(std::string(name_of(GetParam().format)));
  ASSERT_EQ(found.size(), expected.size());
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(i);
    Line line = found[i];
    if (expected[i].ids.back() != end) {
      EXPECT_EQ(line.counted.back(), 0);
      line.ids.pop_back();
      line.counted.pop_back();
    }
    EXPECT_EQ(line.ids, expected[i].ids);
    EXPECT_EQ(line.counted, expected[i].counted);
    counted += std::count(line.counted.begin(), line.counted.end(), 1);
  }
  EXPECT_EQ(summary.train.counted, counted);
}

/// A prompt is what precedes an answer in a conversation.
TEST_P(ChatFormats, PromptsEndBeforeTheAnswer) {
  const ChatFormat format = GetParam().format;
  const std::vector<ChatMessage> messages{
      {"user", "One?"}, {"assistant", "1"}, {"user", " Two? "}, {"assistant", "2"}};
  for (const std::size_t last : {1, 3}) {
    const auto end = messages.begin() + static_cast<std::ptrdiff_t>(last);
    const Conversation whole = conversation(format, {{messages.begin(), end + 1}});
    const std::size_t answer = whole.answers.back().first;
    EXPECT_EQ(prompt_of(format, {{messages.begin(), end}}), whole.text.substr(0, answer));
    const std::string words = whole.text.substr(0, whole.answers.back().second);
    EXPECT_TRUE(words.ends_with(end_of_answer(format))) << words;
  }
  EXPECT_THROW(prompt_of(format, {messages}), UsageError) << "there is nothing to be answered";
}

TEST(Instructions, CompletionsCountButPromptsDoNot) {
  const TemporaryFolder folder;
  const std::string tokenizer = golden_file("instructions/bpe.json");
  tokenize(options_of(folder, golden_file("instructions/completions.jsonl"), tokenizer),
           [](auto) {});
  const auto expected = golden_lines("completions");
  const auto found = lines_of(folder.file("out.h5"), make_tokenizer(tokenizer)->end_of_document());
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(i);
    Line line = found[i];
    EXPECT_EQ(line.counted.back(), 1) << "the end of the document is learned";
    line.ids.pop_back();
    line.counted.pop_back();
    EXPECT_EQ(line.ids, expected[i].ids);
    EXPECT_EQ(line.counted, expected[i].counted);
  }
}

TEST(Instructions, JsonTextsGiveTheFileOfPlainTexts) {
  const TemporaryFolder folder;
  const auto lines = folder.write("a.jsonl",
                                  "{\"text\": \"one\"}\r\n\n{\"text\": \"\"}\n"
                                  "{\"text\": \"zw\\u00f6lf\", \"other\": 1}");
  const auto plain = folder.write("plain", "one\nzwölf");
  const auto a = options_of(folder, lines, "bytes");
  auto b = options_of(folder, plain, "bytes");
  b.output = folder.file("plain.h5");
  b.document_separator = "\n";
  tokenize(a, [](auto) {});
  tokenize(b, [](auto) {});
  const TokenFile found(a.output), expected(b.output);
  EXPECT_FALSE(found.has_mask());
  EXPECT_EQ(found.header().version, 1u);
  EXPECT_EQ(found.header().tokens_digest, expected.header().tokens_digest);
  EXPECT_EQ(found.header().offsets_digest, expected.header().offsets_digest);
  EXPECT_EQ(found.text_bytes(), expected.text_bytes());
}

/// Parts that count and parts that do not, of all lengths modulo 8: the bits of a byte.
TEST(Instructions, MasksReadBackAsWritten) {
  const TemporaryFolder folder;
  for (int before = 0; before < 20; ++before)
    for (int middle = 1; middle < 10; ++middle) {
      const auto path = folder.file("t.h5");
      std::vector<int> expected;
      {
        TokenFileWriter writer(path, "bytes", 257);
        for (const auto& [count, counted] : {std::pair{before, true},
                                             {middle, false},
                                             {0, false},
                                             {3, true},
                                             {2, false},
                                             {9000, true}}) {
          writer.append(std::vector<std::int32_t>(static_cast<std::size_t>(count), 7), counted);
          expected.insert(expected.end(), static_cast<std::size_t>(count), counted);
        }
        writer.end_document(0);
        writer.commit("");
      }
      const TokenFile file(path);
      EXPECT_EQ(file.header().version, masked_token_version);
      file.verify();
      for (const std::int64_t first : {0, 1, before, before + middle, before + 9}) {
        std::vector<std::int32_t> ids(expected.size() - static_cast<std::size_t>(first), 7);
        file.mask(first, ids);
        std::int64_t counted = 0;
        for (std::size_t i = 0; i < ids.size(); ++i) {
          const int bit = expected[static_cast<std::size_t>(first) + i];
          ASSERT_EQ(ids[i], bit ? 7 : uncounted) << first << ' ' << i;
          counted += bit;
        }
        EXPECT_EQ(file.counted(first, std::ssize(ids)), counted);
      }
    }
}

TEST(Instructions, DetectsDamageOfTheMask) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  TokenFileWriter writer(path, "bytes", 257);
  writer.append(std::vector<std::int32_t>(100, 7), false);
  writer.append(std::vector<std::int32_t>(100, 8));
  writer.end_document(0);
  writer.commit("");
  const std::string whole = read_file(path);
  const auto at = static_cast<std::size_t>(TokenFile(path).header().mask_begin);
  std::string damaged = whole;
  damaged[at + 3] = static_cast<char>(damaged[at + 3] ^ 16);
  folder.write("t.h5", damaged);
  const TokenFile file(path);
  EXPECT_THROW(file.verify_bytes(), Error);
}

TEST(Instructions, RejectsAFileWithoutCountedTokens) {
  const TemporaryFolder folder;
  TokenFileWriter writer(folder.file("t.h5"), "bytes", 257);
  writer.append(std::vector<std::int32_t>(40, 7), false);
  writer.append(std::vector<std::int32_t>(3, 8));  // after the last whole sample
  writer.end_document(0);
  writer.commit("");
  const TokenFile file(folder.file("t.h5"));
  deck::Config config;
  config.model.sequence = 13;
  config.model.hidden = 8;
  config.model.heads = 1;
  config.model.vocabulary = 257;
  EXPECT_THROW(make_batch_reader(config)->expect_usable(Windows(file, 13)), UsageError);
  EXPECT_NO_THROW(make_batch_reader(config)->expect_usable(Windows(file, 7)));
}

std::string error_of(const TokenizeOptions& options) {
  try {
    tokenize(options, [](auto) {});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Instructions, ReportsMistakesWithLineAndRemedy) {
  const TemporaryFolder folder;
  const std::string tokenizer = golden_file("instructions/bpe.json");
  const auto error = [&](const std::string& line, ChatFormat chat = ChatFormat::chatml) {
    const auto input = folder.write("a.jsonl", "{\"text\": \"fine\"}\n" + line + "\n");
    return error_of(options_of(folder, input, tokenizer, chat));
  };
  const auto expect = [](const std::string& found, const std::string& part) {
    EXPECT_NE(found.find("a.jsonl:2: "), std::string::npos) << found;
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  expect(error("{\"text\": 5}"), "\"text\" is 5, expected a string");
  expect(error("{\"prompt\": \"x\"}"), "has no \"completion\"");
  expect(error("{\"prompt\": \"x\", \"completion\": null}"), "\"completion\" is null");
  expect(error("{\"question\": \"x\"}"), "needs exactly one of");
  expect(error("[1, 2]"), "is a list of 2, expected an object");
  expect(error("{\"text\": \"cut"), "is not JSON");
  expect(error("{\"text\": \"\xff\"}"), "is not UTF-8: byte 11");
  expect(error("{\"messages\": []}"), "\"messages\" is a list of 0");
  expect(error("{\"messages\": [{\"role\": \"user\"}]}"), "message 1 of \"messages\"");
  const std::string user = "{\"role\": \"user\", \"content\": \"q\"}";
  const std::string answer = "{\"role\": \"assistant\", \"content\": \"a\"}";
  expect(error("{\"messages\": [" + user + "]}"), "no message of role 'assistant'");
  expect(error("{\"messages\": [" + user + ", " + answer + "]}", ChatFormat::none),
         "--chat: chatml, ");
  expect(error("{\"messages\": [{\"role\": \"bot\", \"content\": \"\"}, " + answer + "]}"),
         "role 'bot', expected one of system, user, assistant, tool");
  expect(
      error("{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|>\"}, " + answer + "]}"),
      "name of the special token <|im_end|>");
  const auto input = folder.write("a.jsonl", "{\"messages\": [" + answer + ", " + user + "]}\n");
  EXPECT_NE(
      error_of(options_of(folder, input, golden_file("instructions/gemma.json"), ChatFormat::gemma))
          .find("role 'assistant' where one of 'user' must follow"),
      std::string::npos);
  EXPECT_NE(error_of(options_of(folder, input, "bytes", ChatFormat::llama3))
                .find("needs the special token <|begin_of_text|>"),
            std::string::npos);
  EXPECT_EQ(files_in(folder), 1) << "no output";
}

}  // namespace
}  // namespace trireme::data
