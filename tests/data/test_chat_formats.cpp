#include <trireme/base/check.hpp>
#include <trireme/data/chat.hpp>
#include <trireme/data/chat_lines.hpp>
#include <trireme/data/instructions.hpp>
#include <trireme/data/tokenize.hpp>
#include <trireme/data/tokenizer.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>

/// Texts of conversations with tools against the published templates (tests/golden/instructions),
/// and what becomes of the members of lines and messages.
namespace trireme::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using Ids = std::vector<std::int32_t>;
using OrderedJson = nlohmann::ordered_json;

Chat chat_of(const std::string& line) {
  const OrderedJson json = OrderedJson::parse(line);
  return data::chat_of(JsonLine(json, "a.jsonl:2", instruction_form));
}

std::vector<Chat> chats_in(const std::string& name) {
  std::vector<Chat> chats;
  read_json_lines(golden_file("instructions/" + name), instruction_form,
                  [&](const JsonLine& line) { chats.push_back(data::chat_of(line)); });
  return chats;
}

std::vector<std::string> answers_of(const Conversation& all) {
  std::vector<std::string> answers;
  for (const auto& [begin, end] : all.answers)
    answers.push_back(all.text.substr(begin, end - begin));
  return answers;
}

TEST(ChatTemplates, TextsAndAnswersMatchThePublishedTemplates) {
  const OrderedJson texts = OrderedJson::parse(read_file(golden_file("instructions/texts.json")));
  int compared = 0;
  for (const auto& [name, files] : texts.items())
    for (const auto& [file, expected] : files.items()) {
      const auto chats = chats_in(file + ".jsonl");
      ASSERT_EQ(chats.size(), expected.size());
      for (std::size_t i = 0; i < chats.size(); ++i) {
        SCOPED_TRACE(name + " " + file + " " + std::to_string(i));
        const Conversation found = conversation(chat_format(name), chats[i]);
        EXPECT_EQ(found.text, expected[i][0]);
        EXPECT_EQ(answers_of(found), expected[i][1].get<std::vector<std::string>>());
        ++compared;
      }
    }
  EXPECT_EQ(compared, 25);
}

/// ChatML has no system message of its own.
TEST(ChatTemplates, ChatmlEqualsQwenWithoutTheSystemMessage) {
  const std::string sentence =
      "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
  for (const char* file : {"conversations.jsonl", "tools.jsonl"})
    for (const Chat& chat : chats_in(file)) {
      std::string expected = conversation(ChatFormat::qwen2_5, chat).text;
      if (chat.messages.front().role != "system") {
        const std::string gone = chat.tools.empty()
                                     ? "<|im_start|>system\n" + sentence + "<|im_end|>\n"
                                     : sentence + "\n\n";
        expected.erase(expected.find(gone), gone.size());
      }
      EXPECT_EQ(conversation(ChatFormat::chatml, chat).text, expected);
    }
}

TEST(ChatTemplates, PromptsWithToolsEndBeforeTheAnswer) {
  for (const ChatFormat format :
       {ChatFormat::chatml, ChatFormat::qwen2_5, ChatFormat::llama3_1, ChatFormat::mistral}) {
    Chat chat = chats_in("tools.jsonl").front();
    const Conversation whole = conversation(format, chat);
    chat.messages.pop_back();
    EXPECT_EQ(prompt_of(format, chat), whole.text.substr(0, whole.answers.back().first));
    chat.messages.pop_back();
    EXPECT_THROW(prompt_of(format, chat), UsageError) << "the last message is a call";
    chat.messages.pop_back();
    EXPECT_EQ(prompt_of(format, chat), whole.text.substr(0, whole.answers.front().first));
  }
}

TEST(ChatTemplates, QwenJoinsToolResultsAndKeepsContentWithCalls) {
  const Chat chat = chat_of(R"({"messages": [
      {"role": "user", "content": "q"},
      {"role": "assistant", "content": "I look.", "tool_calls": [
        {"function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2.50}"}},
        {"name": "g", "arguments": {}}]},
      {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"},
      {"role": "assistant", "content": "a"}]})");
  const Conversation found = conversation(ChatFormat::chatml, chat);
  EXPECT_EQ(found.text,
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nI look.\n<tool_call>\n"
            "{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2.5}}\n</tool_call>\n<tool_call>\n"
            "{\"name\": \"g\", \"arguments\": {}}\n</tool_call><|im_end|>\n<|im_start|>user\n"
            "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\na<|im_end|>\n");
  EXPECT_EQ(answers_of(found).size(), 2u);
}

TEST(ChatTemplates, RejectConversationsTheyCannotWrite) {
  const auto error = [](ChatFormat format, const std::string& messages) -> std::string {
    try {
      conversation(format, chat_of("{\"messages\": [" + messages + "]}"));
    } catch (const UsageError& found) {
      return found.what();
    }
    return "";
  };
  const std::string user = R"({"role": "user", "content": "q"}, )";
  const auto calls = [&](const std::string& content, const std::string& list) {
    return user + R"({"role": "assistant", "content": ")" + content + R"(", "tool_calls": [)" +
           list + "]}";
  };
  const std::string call = R"({"id": "123456789", "function": {"name": "f", "arguments": {}}})";
  const std::string short_id = R"({"id": "1", "function": {"name": "f", "arguments": {}}})";
  const std::string result = user + R"({"role": "tool", "content": "1"})";
  const auto expect = [&](ChatFormat format, const std::string& messages, const char* part) {
    EXPECT_NE(error(format, messages).find(part), std::string::npos)
        << name_of(format) << ": " << error(format, messages);
  };
  expect(ChatFormat::gemma, calls("", call), "which gemma does not define");
  expect(ChatFormat::gemma, result, "which gemma does not define");
  expect(ChatFormat::llama3, calls("", call), "which llama3 does not define");
  expect(ChatFormat::llama3, result, "which llama3 does not define");
  expect(ChatFormat::llama3_1, calls("", call + ", " + call), "2 tool calls");
  expect(ChatFormat::llama3_1, calls("text", call), "beside \"tool_calls\"");
  expect(ChatFormat::mistral, calls("text", call), "beside \"tool_calls\"");
  expect(ChatFormat::mistral, calls("", short_id), "has the \"id\" '1'");
  expect(ChatFormat::mistral, result, "has the \"tool_call_id\" ''");
  expect(ChatFormat::chatml, R"({"role": "developer", "content": "q"})", "role 'developer'");
  EXPECT_EQ(error(ChatFormat::mistral, calls("", call)), "");
}

TEST(PythonJson, NumbersMatchPythonsRepr) {
  for (const auto& [written, expected] : std::vector<std::pair<const char*, const char*>>{
           {"1.0", "1.0"},
           {"1.50", "1.5"},
           {"-0.0", "-0.0"},
           {"1E5", "100000.0"},
           {"0.0001", "0.0001"},
           {"0.00001", "1e-05"},
           {"1e15", "1000000000000000.0"},
           {"1e16", "1e+16"},
           {"123456789012345678", "123456789012345678"},
           {"123456789012345678.0", "1.2345678901234568e+17"},
           {"5e-324", "5e-324"},
           {"0.1", "0.1"},
           {"18446744073709551615", "18446744073709551615"}})
    EXPECT_EQ(python_json(OrderedJson::parse(written)), expected);
  EXPECT_THROW(python_json(OrderedJson::parse("18446744073709551616")), UsageError);
  EXPECT_EQ(python_json(OrderedJson::parse(R"({"b":[1,{}],"a":[]})"), 2),
            "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": []\n}");
}

/// The first line of a message's or line's error, or "" if tokenize takes the line.
class ChatMembers : public ::testing::Test {
 protected:
  std::string error(const std::string& line, ChatFormat chat = ChatFormat::chatml) {
    TokenizeOptions o;
    o.inputs = {folder_.write("a.jsonl", "{\"text\": \"fine\"}\n" + line + "\n")};
    o.output = folder_.file("out.h5");
    o.tokenizer = golden_file("instructions/bpe.json");
    o.chat = chat;
    try {
      counted_ = tokenize(o, [](auto) {}).train.counted;
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }
  void expect(const std::string& line, const std::string& part) {
    const std::string found = error(line);
    EXPECT_NE(found.find("a.jsonl:2: "), std::string::npos) << line << "\n" << found;
    EXPECT_NE(found.find(part), std::string::npos) << line << "\n" << found;
  }
  /// A line whose answer, or question, has a member more.
  static std::string with(const std::string& member, const std::string& role = "assistant") {
    const std::string other = role == "assistant" ? "user" : "assistant";
    return R"({"messages": [{"role": ")" + other + R"(", "content": "hi"}, {"role": ")" + role +
           R"(", "content": "x", )" + member + "}]}";
  }

  TemporaryFolder folder_;
  std::int64_t counted_ = 0;
};

TEST_F(ChatMembers, AnswersOfWeightZeroAreWrittenButNotCounted) {
  const std::string user = R"({"role": "user", "content": "no"}, )";
  const std::string good = R"({"role": "assistant", "content": "good"})";
  ASSERT_EQ(error("{\"messages\": [" + user + good + "]}"), "");
  const std::int64_t one = counted_;
  for (const char* member :
       {"\"weight\": 0", "\"train\": false", "\"loss\": 0", "\"loss_mask\": 0", "\"weight\": 0.0",
        "\"training\": false", "\"step_loss_mask\": 0", "\"weight\": 0, \"train\": null"}) {
    const std::string bad =
        R"({"role": "assistant", "content": "bad", )" + std::string(member) + "}, ";
    EXPECT_EQ(error("{\"messages\": [" + user + bad + user + good + "]}"), "") << member;
    EXPECT_EQ(counted_, one) << member;
    expect(with(member), "no message of role 'assistant' that counts in the loss");
  }
  const std::string full = R"({"role": "assistant", "content": "good", "weight": 1}, )";
  EXPECT_EQ(error("{\"messages\": [" + user + full + user + good + "]}"), "");
  EXPECT_GT(counted_, one);
  expect(with("\"weight\": 0.5"), "has \"weight\": 0.5, expected 0, 1, false or true");
  expect(with("\"loss_mask\": [1, 0]"), "has \"loss_mask\": an array, expected");
  expect(with("\"weight\": 0, \"train\": true"), "contradict each other");
  expect(with("\"train\": true", "user"), "only an assistant's messages count");
  EXPECT_EQ(error(with("\"train\": false", "user")), "");
}

TEST_F(ChatMembers, RejectsUnknownMembersAndIgnoresDescriptions) {
  for (const char* name : {"reasoning_content", "thinking", "function_call", "audio", "images",
                           "refusal", "prefix", "train_detail"}) {
    expect(with("\"" + std::string(name) + "\": \"because\""),
           "has the member \"" + std::string(name) + "\"");
    EXPECT_EQ(error(with("\"" + std::string(name) + "\": null")), "") << name;
  }
  for (const char* name : {"name", "id", "source", "timestamp", "metadata"})
    EXPECT_EQ(error(with("\"" + std::string(name) + "\": \"because\"")), "") << name;
  expect(with("\"tool_calls\": [{\"function\": {\"name\": \"f\"}}]"),
         "has a tool call that is not");
  expect(with("\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"cut {\"}}]"),
         "has a tool call that is not");
  expect(with("\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {}, \"x\": 1}}]"),
         "has the member \"x\"");
  expect(with("\"tool_calls\": [{\"name\": \"f\", \"arguments\": {}}]", "user"),
         "only an assistant calls tools");
}

TEST_F(ChatMembers, RejectsUnknownMembersOfALine) {
  const std::string talk = R"("messages": [{"role": "user", "content": "hi"}, )"
                           R"({"role": "assistant", "content": "x"}])";
  for (const char* member :
       {"\"system\": \"Be brief.\"", "\"functions\": [{\"name\": \"f\"}]",
        "\"chat_template_kwargs\": {\"enable_thinking\": true}", "\"images\": [\"a.png\"]"}) {
    expect("{" + talk + ", " + member + "}", "has the member ");
    expect("{\"prompt\": \"a\", \"completion\": \"b\", " + std::string(member) + "}",
           "has the member ");
    EXPECT_EQ(error("{\"text\": \"a\", " + std::string(member) + "}"), "") << "describes a text";
  }
  expect("{" + talk + ", \"weight\": 0}", "lines have no loss weight");
  expect("{\"text\": \"a\", \"weight\": 0.5}", "lines have no loss weight");
  expect("{\"prompt\": \"a\", \"completion\": \"b\", \"train\": false}", "no loss weight");
  EXPECT_EQ(error("{" + talk + R"(, "id": 5, "source": "x", "images": null, "tools": []})"), "");
  EXPECT_EQ(error("{" + talk + R"(, "tools": "[{\"function\": {\"name\": \"f\"}}]"})"), "");
  expect("{" + talk + ", \"tools\": [\"f\"]}", "\"tools\" is a list of 1, expected a list of obj");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  expect("{" + talk + ", \"tools\": [{\"n\": " + deep + "}]}", "\"tools\" is a list of 1");
  expect("{" + talk + ", \"weight\": " + deep + "}", "has \"weight\": an array");
  expect("{" + talk + ", \"tools\": [{\"n\": 100000000000000000000}]}", "beyond 64 bits");
}

TEST_F(ChatMembers, RejectsSpecialTokensInAnyText) {
  const auto call = [](const std::string& function) {
    return with("\"tool_calls\": [{\"id\": \"1\", \"function\": {" + function + "}}]");
  };
  const std::string name = "name of the special token <|im_end|>";
  expect(call(R"("name": "<|im_end|>", "arguments": {})"), name);
  expect(call(R"("name": "f", "arguments": {"a": "b<|im_end|>"})"), name);
  expect(call(R"("name": "f", "arguments": {"<|im_end|>": 1})"), name);
  expect(call(R"("name": "f", "arguments": "{\"a\": \"\\u003c|im_end|>\"}")"), name);
  expect(
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}],)"
      R"( "tools": [{"function": {"description": "<|im_end|>"}}]})",
      name);
  expect(R"({"messages": [{"role": "system", "content": "<|im_end|>"}, )"
         R"({"role": "assistant", "content": "x"}]})",
         name);
}

/// Mistral's tools have special tokens of their own.
TEST_F(ChatMembers, RejectsATokenizerWithoutToolTokens) {
  const auto file =
      folder_.write("tools.jsonl", read_file(golden_file("instructions/tools.jsonl")));
  TokenizeOptions o;
  o.inputs = {file};
  o.output = folder_.file("out.h5");
  o.tokenizer = golden_file("instructions/mistral.json");
  o.chat = ChatFormat::mistral;
  try {
    tokenize(o, [](auto) {});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("--chat mistral with tools needs the special token ["),
              std::string::npos)
        << error.what();
  }
}

/// Chats train a tokenizer that has the special tokens, whose names it does not learn as text.
TEST_F(ChatMembers, TrainsATokenizerOnConversations) {
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += read_file(golden_file("instructions/tools.jsonl"));
  for (const ChatFormat format : {ChatFormat::qwen2_5, ChatFormat::llama3_1, ChatFormat::mistral}) {
    TokenizeOptions o;
    o.inputs = {folder_.write("chats.jsonl", lines)};
    o.output = folder_.file("out.h5");
    o.tokenizer = folder_.file("tokenizer.json");
    o.train_bpe = 400;
    o.chat = format;
    const auto summary = tokenize(o, [](auto) {});
    EXPECT_LT(summary.train.counted, summary.train.tokens);
    const auto tokenizer = make_tokenizer(o.tokenizer);
    for (const std::string_view token : special_tokens_of(format, true))
      EXPECT_GE(tokenizer->special_token(token), 0) << token;
    for (std::int32_t id = 0; id < tokenizer->vocabulary(); ++id) {
      std::string words;
      tokenizer->decode(std::span(&id, 1), words);
      const auto names = tokenizer->special_tokens();
      if (std::ranges::any_of(names, [&](const auto& t) { return t.second == id; })) continue;
      EXPECT_EQ(words.find("<|im_"), std::string::npos) << words;
      EXPECT_EQ(words.find("INST"), std::string::npos) << words;
    }
    o.chat = ChatFormat::none;
    EXPECT_THROW(tokenize(o, [](auto) {}), UsageError) << "no format is named";
  }
}

/// A folder's other files are not mistaken for documents.
TEST_F(ChatMembers, RejectsTextFilesAmongConversations) {
  std::filesystem::create_directory(folder_.file("in"));
  folder_.write("in/b.jsonl", read_file(golden_file("instructions/conversations.jsonl")));
  TokenizeOptions o;
  o.inputs = {folder_.file("in")};
  o.output = folder_.file("out.h5");
  o.tokenizer = golden_file("instructions/bpe.json");
  o.chat = ChatFormat::chatml;
  EXPECT_NO_THROW(tokenize(o, [](auto) {}));
  for (const char* name : {"in/README.md", "in/z.txt", "in/a.json"}) {
    folder_.write(name, "{}");
    for (const std::int64_t ids : {0, 400}) {
      o.train_bpe = ids;
      o.tokenizer = ids > 0 ? folder_.file("tokenizer.json") : golden_file("instructions/bpe.json");
      try {
        tokenize(o, [](auto) {});
        ADD_FAILURE() << name;
      } catch (const UsageError& error) {
        EXPECT_NE(std::string(error.what()).find(std::string(name) + " as text"), std::string::npos)
            << error.what();
      }
    }
    std::filesystem::remove(folder_.file(name));
  }
}

TEST(BeforeText, TokensComeFromThePostProcessor) {
  const OrderedJson file = OrderedJson::parse(read_file(golden_file("instructions/mistral.json")));
  const auto before = [&](const char* post_processor) {
    const TemporaryFolder folder;
    OrderedJson json = file;
    json["post_processor"] = OrderedJson::parse(post_processor);
    return make_tokenizer(folder.write("t.json", json.dump()))->before_text();
  };
  EXPECT_EQ(before("null"), Ids{});
  EXPECT_EQ(before(R"({"type": "ByteLevel"})"), Ids{});
  const std::string bos =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
          {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
          "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
                             "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}})";
  EXPECT_EQ(before(bos.c_str()), Ids{1});
  EXPECT_EQ(
      before(
          (R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" + bos + "]}").c_str()),
      Ids{1});
  EXPECT_EQ(before(R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}]})"),
            Ids{});
  EXPECT_EQ(before(R"({"type": "RobertaProcessing", "cls": ["<s>", 7], "sep": ["</s>", 2]})"),
            Ids{7});
  EXPECT_THROW(before(R"({"type": "Other"})"), UsageError);
  EXPECT_THROW(before(R"({"type": "TemplateProcessing"})"), UsageError);
  EXPECT_TRUE(make_tokenizer("bytes")->before_text().empty());
}

}  // namespace
}  // namespace trireme::data
