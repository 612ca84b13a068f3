#include <commands/training_runs.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cctype>
#include <sstream>
#include <string>
#include <vector>

/// `trireme generate`: prompts from files, stop texts, texts as JSON lines.
namespace trireme::commands {
namespace {

using namespace commands::testing;
using Json = nlohmann::json;

class Generate : public TrainingRuns {
 protected:
  Generate() { EXPECT_EQ(run(train(1, "run.steps=12")), 0) << err(); }

  int generate(int ranks, const std::string& arguments) const {
    const std::string launcher =
        ranks == 1 ? "" : std::string(TRIREME_MPIEXEC) + " -n " + std::to_string(ranks) + " ";
    return run(launcher + "trireme generate deck.toml " + arguments);
  }
  std::vector<Json> lines(const std::string& name) const {
    std::vector<Json> found;
    std::istringstream in(file(name));
    for (std::string line; std::getline(in, line);) found.push_back(Json::parse(line));
    return found;
  }
};

TEST_F(Generate, TextsOfPromptsOfAFileDoNotDependOnTheNumberOfRanks) {
  folder_.write("prompts.txt", "the quick\n\nbrown\r\n");
  folder_.write("prompts.jsonl", R"({"prompt": "the quick"})"
                                 "\n"
                                 R"({"prompt": "", "other": 1})"
                                 "\n"
                                 R"({"prompt": "brown"})");
  std::string texts, written;
  for (const int ranks : {1, 2, 4}) {
    ASSERT_EQ(generate(ranks, "--prompts prompts.txt --tokens 30 --samples 2"), 0) << err();
    if (texts.empty()) texts = out();
    EXPECT_EQ(out(), texts) << ranks;
    ASSERT_EQ(generate(ranks, "--prompts prompts.jsonl --tokens 30 --samples 2 -o texts.jsonl"), 0)
        << err();
    EXPECT_EQ(out(), "texts.jsonl: 6 texts\n");
    if (written.empty()) written = file("texts.jsonl");
    EXPECT_EQ(file("texts.jsonl"), written) << ranks;
  }
  EXPECT_EQ(occurrences(texts, "---- prompt "), 6);
  EXPECT_EQ(texts.rfind("---- prompt 1 of 3, sample 1 of 2\nthe quick", 0), 0u) << texts;
  const auto found = lines("texts.jsonl");
  ASSERT_EQ(found.size(), 6u);
  EXPECT_EQ(found[2]["prompt"], "");
  EXPECT_EQ(found[5]["prompt"], "brown");
  EXPECT_EQ(found[5]["sample"], 2);
  EXPECT_NE(found[4]["text"], found[5]["text"]) << "each text has random numbers of its own";
  for (const Json& line : found) {
    EXPECT_LE(line["tokens"], 30);
    EXPECT_EQ(line["end"], line["tokens"] == 30 ? "tokens" : "end_of_document");
  }
}

/// Tensor and pipeline ranks, more texts than are open at a time, ranks that are no multiple of the
/// deck's, prompts longer than the model's sequence.
TEST_F(Generate, TextsDoNotDependOnTheLayout) {
  std::string prompts;
  for (int i = 0; i < 7; ++i) {
    for (int word = 0; word < i * i; ++word) prompts += "the quick brown ";
    prompts += "fox " + std::to_string(i) + "\n";
  }
  folder_.write("prompts.txt", prompts);
  const std::string model = "model.layers=4 run.directory=deep precision.compute=fp64 ";
  ASSERT_EQ(run(train(1, model)), 0) << err();
  for (const std::string draw : {"--temperature 0 ", "--seed 3 "}) {
    std::string texts;
    for (const auto& [ranks, keys] : std::vector<std::pair<int, std::string>>{
             {1, "--batch 1"},
             {1, ""},
             {2, "parallel.tensor=2"},
             {2, "parallel.pipeline=2 --batch 3"},
             {3, "parallel.tensor=3 --batch 2"},
             {3, "parallel.pipeline=2"},
             {4, "parallel.tensor=2 parallel.pipeline=2 parallel.sequence_parallel=true"},
             {4,
              "parallel.pipeline=2 parallel.chunks=2 parallel.schedule=interleaved --batch 1"}}) {
      SCOPED_TRACE(draw + std::to_string(ranks) + " " + keys);
      ASSERT_EQ(generate(ranks, model + "--prompts prompts.txt --tokens 40 " + draw + keys), 0)
          << err();
      if (texts.empty()) texts = out();
      EXPECT_EQ(occurrences(out(), "---- prompt "), 7);
      EXPECT_EQ(out(), texts);
    }
  }
}

TEST_F(Generate, StopTextsEndATextBeforeThem) {
  std::string whole, arguments;
  std::size_t at = 0;  // of two characters that a shell leaves as they are
  const auto is_word = [&] {
    const auto letter = [&](std::size_t i) {
      return std::isalpha(static_cast<unsigned char>(whole[i])) != 0;
    };
    return letter(at) && letter(at + 1);
  };
  for (int seed = 1; at + 2 >= whole.size() && seed < 30; ++seed) {
    arguments = "--tokens 60 --seed " + std::to_string(seed) + " ";
    ASSERT_EQ(generate(1, arguments + "-o whole.jsonl"), 0) << err();
    whole = lines("whole.jsonl").at(0)["text"];
    for (at = 4; at + 2 < whole.size() && !is_word();) ++at;
  }
  ASSERT_LT(at + 2, whole.size()) << whole;
  const std::string stop = whole.substr(at, 2);
  ASSERT_EQ(generate(1, arguments + "--stop never --stop " + stop + " -o stopped.jsonl"), 0)
      << err();
  const Json stopped = lines("stopped.jsonl").at(0);
  EXPECT_EQ(stopped["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(stopped["end"], "stop");
  EXPECT_LT(stopped["tokens"], 60);
}

TEST_F(Generate, ChoicesAmongTokensAreThoseOfTheOptions) {
  const auto text_of = [&](const std::string& arguments) {
    EXPECT_EQ(generate(1, "--tokens 40 " + arguments), 0) << err();
    return out();
  };
  const std::string likeliest = text_of("--temperature 0");
  EXPECT_EQ(text_of("--top-p 1e-6"), likeliest);
  EXPECT_EQ(text_of("--min-p 1"), likeliest);
  EXPECT_NE(text_of(""), likeliest);
  EXPECT_EQ(text_of("--top-p 1 --min-p 0"), text_of(""));
}

TEST_F(Generate, MistakesAreOneErrorEach) {
  folder_.write("empty.txt", "");
  folder_.write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  for (const auto& [arguments, part] : std::vector<std::pair<std::string, std::string>>{
           {"--prompts absent.txt", "absent.txt: cannot open"},
           {"--prompts empty.txt", "empty.txt: has no prompts"},
           {"--prompts bad.jsonl",
            "bad.jsonl:2: has no \"prompt\"; write lines such as {\"prompt\""},
           {"--prompts empty.txt --prompt x", "--prompt excludes --prompts"},
           {"--chat chatml", "--chat chatml needs the special token <|im_start|>, which the "},
           {"--chat alpaca", "--chat: alpaca not in {chatml,llama3,mistral,gemma}"},
           {"--top-p 0", "expected a number above 0, at most 1, found 0"},
           {"--top-p 1.5", "at most 1, found 1.5"},
           {"--min-p -1", "found -1"},
           {"--min-p nan", "found nan"},
           {"--stop ''", "expected a text that is not empty"},
           {"-o absent/texts.jsonl", "cannot create a file in absent"},
           {"-o data", "data: exists and is not a regular file"}}) {
    SCOPED_TRACE(arguments);
    EXPECT_EQ(generate(2, arguments), 2);
    expect_one_error({part});
  }
}

}  // namespace
}  // namespace trireme::commands
