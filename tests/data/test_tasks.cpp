#include <trireme/base/check.hpp>
#include <trireme/data/tasks.hpp>

#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace trireme::data {
namespace {

using testing::TemporaryFolder;

struct Read {
  Task task;
  std::vector<Request> requests;
};

Read read(const std::string& lines, std::int64_t sequence = 12) {
  const TemporaryFolder folder;
  Read found;
  found.task = read_task(folder.write("task.jsonl", lines), *make_tokenizer("bytes"),
                         {sequence, 257, 256}, found.requests);
  return found;
}

std::vector<std::int32_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

TEST(Tasks, TrailingSpacesOfAContextAreScored) {
  const Read found = read(R"({"query": "ab  ", "choices": ["c", "de"], "answer": "de"})");
  ASSERT_EQ(found.requests.size(), 2u);
  EXPECT_EQ(found.requests[0].tokens, bytes_of("ab   c"));
  EXPECT_EQ(found.requests[0].context, 2);
  EXPECT_EQ(found.requests[1].tokens, bytes_of("ab   de"));
  EXPECT_EQ(found.task.items[0].gold, 1);
}

TEST(Tasks, LongContextsLoseTheirBeginning) {
  const Read found = read(R"({"context": "0123456789", "continuation": "abcde"})", 8);
  EXPECT_EQ(found.requests[0].tokens, bytes_of("789 abcde"));
  EXPECT_EQ(found.requests[0].context, 3);
  EXPECT_EQ(found.task.truncated, 1);
}

TEST(Tasks, TextsUseTheWindowsOfTheHarness) {
  const Read found = read(R"({"text": "0123456789"})", 4);
  ASSERT_EQ(found.requests.size(), 3u);
  std::vector<std::int32_t> first = bytes_of("0123");
  first.insert(first.begin(), 256);
  EXPECT_EQ(found.requests[0].tokens, first);
  EXPECT_EQ(found.requests[0].context, 1);
  EXPECT_EQ(found.requests[1].tokens, bytes_of("34567"));
  EXPECT_EQ(found.requests[1].context, 1);
  EXPECT_EQ(found.requests[2].tokens, bytes_of("56789"));
  EXPECT_EQ(found.requests[2].context, 3);
}

TEST(Tasks, RequestsHaveTargetsAtScoredTokens) {
  const Requests requests({{{1, 2, 3, 4}, 2}, {{5, 6}, 1}}, 5);
  std::vector<std::int32_t> inputs(10, 9), targets(10, 9);
  requests.read(0, 2, inputs, targets);
  EXPECT_EQ(inputs, (std::vector<std::int32_t>{1, 2, 3, 0, 0, 5, 0, 0, 0, 0}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{-1, 3, 4, -1, -1, 6, -1, -1, -1, -1}));
}

TEST(Tasks, ContextsAreTheSourcesOfAnEncoder) {
  const TemporaryFolder folder;
  const auto read_targets = [&](const std::string& lines, std::vector<Request>& requests) {
    TaskOptions options{6, 262, 256};
    options.source = 5;
    options.start = 261;
    options.end = 260;
    return read_task(folder.write("task.jsonl", lines), *make_tokenizer("bytes"), options,
                     requests);
  };
  std::vector<Request> requests;
  const Task task =
      read_targets(R"({"context": "abcdef ", "choices": ["g", "hi"], "gold": 1})", requests);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].source, (std::vector<std::int32_t>{'d', 'e', 'f', ' ', 260}));
  EXPECT_EQ(requests[0].tokens, (std::vector<std::int32_t>{261, 'g'}));
  EXPECT_EQ(requests[1].tokens, (std::vector<std::int32_t>{261, 'h', 'i'}));
  EXPECT_EQ(requests[1].context, 1);
  EXPECT_EQ(task.truncated, 2);
  requests.clear();
  read_targets(R"({"context": "", "continuation": "123456"})", requests);
  EXPECT_EQ(requests[0].source, (std::vector<std::int32_t>{260}));
  EXPECT_EQ(requests[0].tokens.size(), 7u);
  for (const char* line : {R"({"context": "a", "continuation": "1234567"})", R"({"text": "abc"})"})
    EXPECT_THROW(read_targets(line, requests), UsageError) << line;
}

TEST(Tasks, RequestsFillTheFieldsOfAPair) {
  architecture::TrainingObjective objective;
  std::vector<std::vector<std::int32_t>> memory;
  for (const auto& [name, length] : {std::pair{"source", 3},
                                     {"tokens", 2},
                                     {"targets", 2},
                                     {"source_begin", 3},
                                     {"source_end", 3},
                                     {"key_begin", 2},
                                     {"key_end", 2}}) {
    architecture::BatchField field;
    field.name = name;
    field.at_head = field.name == "targets";
    objective.fields.push_back(field);
    memory.emplace_back(2 * length, 9);  // a batch of two samples
  }
  std::vector<std::span<std::int32_t>> fields(memory.begin(), memory.end());
  const Requests requests({{{0, 5, 6}, 1, {7, 8}}}, 2);
  requests.read(0, 1, objective, fields);
  using Numbers = std::vector<std::int32_t>;
  EXPECT_EQ(memory[0], (Numbers{7, 8, 0, 0, 0, 0}));
  EXPECT_EQ(memory[1], (Numbers{0, 5, 0, 0}));
  EXPECT_EQ(memory[2], (Numbers{5, 6, -1, -1}));
  EXPECT_EQ(memory[3], Numbers(6, 0));
  EXPECT_EQ(memory[4], (Numbers{2, 2, 2, 0, 0, 0})) << "the second sample sees nothing";
  EXPECT_EQ(memory[5], Numbers(4, 0));
  EXPECT_EQ(memory[6], (Numbers{2, 2, 0, 0}));
}

TEST(Tasks, MeasuresMatchTheirDefinitions) {
  const Read choices = read(
      "{\"context\": \"a\", \"choices\": [\"b\", \"cccc\"], \"gold\": 0}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"éé\"], \"gold\": 1}\n");
  const std::vector<Likelihood> l{{-2, false}, {-4, false}, {-1, false}, {-3, false}};
  const auto m = measures(choices.task, l);
  EXPECT_EQ(m[0].value, 0.5);          // choices 0, 0
  EXPECT_EQ(m[1].value, 0.0);          // -2, -1; -1, -1.5
  EXPECT_EQ(m[2].value, 0.5);          // -2, -1; -1, -0.75: é has two bytes
  EXPECT_DOUBLE_EQ(*m[0].error, 0.5);  // sqrt(0.5) / sqrt(2)
  const Read text = read("{\"text\": \"one two  three\"}\n");
  const auto r = measures(text.task, std::vector<Likelihood>{{-6, false}, {-3, false}});
  EXPECT_EQ(text.task.items[0].count, 2u);
  EXPECT_DOUBLE_EQ(r[0].value, std::exp(3.0));
  EXPECT_DOUBLE_EQ(r[1].value, std::exp(9.0 / 14));
  EXPECT_DOUBLE_EQ(r[2].value, 9.0 / 14 / std::numbers::ln2);
  EXPECT_FALSE(r[0].error) << "of one line";
}

TEST(Tasks, ReportMistakesWithLineAndRemedy) {
  const std::string fine = "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 1}\n";
  const auto expect = [&](const std::string& line, const std::string& part) {
    try {
      read(fine + line);
      ADD_FAILURE() << line;
    } catch (const UsageError& error) {
      const std::string found = error.what();
      EXPECT_NE(found.find("task.jsonl:2: "), std::string::npos) << found;
      EXPECT_NE(found.find(part), std::string::npos) << found;
    }
  };
  expect("{\"choices\": [\"b\"], \"gold\": 0}", "has no \"context\"");
  expect("{\"context\": 3, \"choices\": [\"b\"], \"gold\": 0}",
         "\"context\" is 3, expected a string");
  expect("{\"context\": \"a\", \"choices\": \"b\", \"gold\": 0}",
         "\"choices\" is \"b\", expected a list");
  expect("{\"context\": \"a\", \"choices\": [], \"gold\": 0}", "\"choices\" is a list of 0");
  expect("{\"context\": \"a\", \"choices\": [\"b\"]}", "has no \"gold\"");
  expect("{\"context\": \"a\", \"choices\": [\"b\"], \"gold\": 1}", "\"gold\" is 1, expected");
  expect("{\"context\": \"a\", \"choices\": [\"b\"], \"gold\": -1}", "\"gold\" is -1, expected");
  expect("{\"context\": \"a\", \"choices\": [\"b\"], \"gold\": \"x\"}",
         "\"gold\" is \"x\", expected");
  expect("{\"context\": \"a\", \"choices\": [\"\"], \"gold\": 0}", "has an empty string");
  expect("{\"context\": \"a\", \"continuation\": \"b\"}",
         "is a line of kind continuation, but line 1");
  expect("{\"context\": \"a\"}", "needs exactly one of");
  expect("{\"context\": \"\xc3(\", \"choices\": [\"b\"], \"gold\": 0}", "is not UTF-8");
  expect("{\"context\"", "is not JSON");
  expect("{\"context\": \"a\", \"choices\": [\"a long choice\"], \"gold\": 0}",
         "has 14 tokens, more than [model] sequence = 12");
  EXPECT_THROW(read("\n\n"), UsageError);
}

}  // namespace
}  // namespace trireme::data
