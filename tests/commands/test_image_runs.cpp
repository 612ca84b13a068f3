#include <commands/training_runs.hpp>

#include <trireme/base/text.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

/// Runs on images of one of three levels of grey, which a model learns to name.
namespace trireme::commands {
namespace {

using namespace commands::testing;

constexpr const char* greys[] = {"dark", "grey", "light"};

/// An image of about one level as a NumPy array, which every build reads.
std::string array_of_level(int level, int number) {
  using namespace std::string_literals;
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (12, 12, 3), }";
  header.resize(117, ' ');
  std::string pixels;
  for (int i = 0; i < 12 * 12 * 3; ++i)
    pixels += static_cast<char>(20 + 100 * level + (i * 37 + number * 11) % 15);
  return "\x93NUMPY\x01\0\x76\0"s + header + "\n" + pixels;
}

class ImageRuns : public TrainingRuns {
 protected:
  ImageRuns() {
    std::string lines, questions;
    for (int i = 0; i < 60; ++i) {
      const std::string name = text("i", i, ".npy");
      folder_.write(name, array_of_level(i % 3, i));
      const std::string image = text(R"({"image": ")", name, R"(", "prompt": "Is it?")");
      lines += text(image, R"(, "completion": " )", greys[i % 3], "\"}\n");
      if (i < 6) questions += image + "}\n";
    }
    folder_.write("lines.jsonl", lines);
    folder_.write("questions.jsonl", questions);
    EXPECT_EQ(run("trireme tokenize -o t.h5 --train-bpe 300 --images 12 --image-tokens 4 "
                  "--image-fit stretch lines.jsonl"),
              0)
        << err();
    folder_.write("images.toml", R"([run]
directory = "run"
steps = 120
[model]
family = "llama"
layers = 2
hidden = 24
heads = 4
sequence = 20
[vision]
layers = 2
hidden = 16
heads = 4
image = 12
patch = 6
[batch]
global = 12
micro = 6
[precision]
compute = "fp64"
[optimizer]
learning_rate = 5e-3
[data]
train = "t.h5"
tokenizer = "tokenizer.json"
)");
  }
};

/// A restart on another layout continues the run, and the texts do not depend on the layout.
TEST_F(ImageRuns, LearnNamesOnAnyLayout) {
  const std::string launcher = std::string(TRIREME_MPIEXEC) + " -n ";
  ASSERT_EQ(run(launcher + "2 trireme train images.toml parallel.pipeline=2 run.steps=60"), 0)
      << err();
  ASSERT_EQ(
      run(launcher + "2 trireme train images.toml parallel.tensor=2 checkpoint.restart=latest "
                     "parallel.sequence_parallel=true"),
      0)
      << err();
  ASSERT_EQ(run("trireme eval images.toml --data t.h5"), 0) << err();
  std::string texts;
  for (const auto& [ranks, keys] :
       std::vector<std::pair<int, std::string>>{{1, ""},
                                                {1, "--batch 1"},
                                                {2, ""},
                                                {2, "parallel.tensor=2"},
                                                {3, "parallel.pipeline=3 --batch 5"},
                                                {4, "parallel.pipeline=2 parallel.tensor=2"}}) {
    SCOPED_TRACE(keys);
    ASSERT_EQ(run(text(launcher, ranks, " trireme generate images.toml ", keys,
                       " --prompts questions.jsonl --temperature 0 --tokens 3 "
                       "-o texts.jsonl")),
              0)
        << err();
    if (texts.empty()) texts = file("texts.jsonl");
    EXPECT_EQ(file("texts.jsonl"), texts);
  }
  for (const char* grey : greys)
    EXPECT_EQ(occurrences(texts, text("\"text\":\" ", grey, "\"")), 2) << texts;
  ASSERT_EQ(run("trireme generate images.toml --prompt 'Is it?' --image i2.npy "
                "--temperature 0 --tokens 3"),
            0)
      << err();
  EXPECT_NE(out().find("<image>Is it? light"), std::string::npos) << out();
  EXPECT_NE(err().find("note: images become squares with --image-fit stretch, as in the "
                       "training"),
            std::string::npos)
      << err();
}

/// Each image's tokens see one another. Texts are equal in passes over one and over several
/// prompts, and with all layouts.
TEST_F(ImageRuns, WholeImagesAreReadOnAnyLayout) {
  const std::string keys =
      "model.family=gemma3 model.window=3 model.full_attention_every=2 vision.family=gemma3 "
      "vision.patch=3 vision.pool=2 vision.images=2 ";
  const std::string launcher = std::string(TRIREME_MPIEXEC) + " -n ";
  ASSERT_EQ(run(launcher +
                "2 trireme train images.toml run.steps=30 parallel.tensor=2 "
                "parallel.sequence_parallel=true " +
                keys),
            0)
      << err();
  folder_.write("more.jsonl", R"({"image": "i0.npy", "prompt": "Is it?"}
{"image": "i1.npy", "prompt": "Is it? <image>"}
{"images": ["i1.npy", "i2.npy"], "prompt": "<image> and <image>"}
{"prompt": "Is it?"}
)");
  std::string texts;
  for (const auto& [ranks, more] :
       std::vector<std::pair<int, std::string>>{{1, ""},
                                                {1, "--batch 1"},
                                                {2, "parallel.tensor=2"},
                                                {3, "parallel.pipeline=3 --batch 2"}}) {
    SCOPED_TRACE(more);
    ASSERT_EQ(run(text(launcher, ranks, " trireme generate images.toml ", keys, more,
                       " --prompts more.jsonl --image-fit stretch --temperature 0 --tokens 6 "
                       "-o texts.jsonl")),
              0)
        << err();
    if (texts.empty()) texts = file("texts.jsonl");
    EXPECT_EQ(file("texts.jsonl"), texts);
  }
  folder_.write("joined.jsonl", R"({"images": ["i0.npy", "i1.npy"], "prompt": "Is it?"})");
  EXPECT_EQ(run("trireme generate images.toml --prompts joined.jsonl " + keys), 2);
  EXPECT_NE(err().find("joined.jsonl:1 has two images without a token between them"),
            std::string::npos)
      << err();
}

/// The fit of images is that of the training: of other files, of a restart, of an evaluation and of
/// prompts.
TEST_F(ImageRuns, KeepTheFitOfTheirImages) {
  const std::string tokenize =
      "trireme tokenize --tokenizer tokenizer.json --images 12 --image-tokens 4 lines.jsonl ";
  ASSERT_EQ(run(tokenize + "-o crop.h5"), 0) << err();
  ASSERT_EQ(run(tokenize + "-o pad.h5 --image-fit pad --image-end ' .'"), 0) << err();
  ASSERT_EQ(run("trireme inspect pad.h5"), 0) << err();
  EXPECT_NE(out().find("with --image-fit pad and bicubic-pillow12"), std::string::npos) << out();
  ASSERT_EQ(run("trireme inspect pad.h5 --json -"), 0) << err();
  EXPECT_NE(out().find(R"("end": " .")"), std::string::npos) << out();
  const auto expect_refused = [&](const std::string& arguments, const std::string& message) {
    SCOPED_TRACE(arguments);
    EXPECT_EQ(run("trireme " + arguments), 2) << out();
    EXPECT_NE(err().find(message), std::string::npos) << err();
  };
  expect_refused("train images.toml 'data.train=0.5 t.h5, 0.5 pad.h5'",
                 "pad.h5: its images became squares with --image-fit pad, but those of t.h5 with "
                 "--image-fit stretch; tokenize with --image-fit stretch");
  expect_refused("check images.toml 'data.train=0.5 t.h5, 0.5 pad.h5'",
                 "pad.h5: its images became squares with --image-fit pad");
  expect_refused(
      "train images.toml data.validation=crop.h5",
      "crop.h5: its images became squares with --image-fit crop, but those of t.h5 with");
  ASSERT_EQ(run("trireme train images.toml run.steps=2"), 0) << err();
  expect_refused(
      "train images.toml run.steps=4 checkpoint.restart=latest data.train=pad.h5",
      "the images of [data] train = \"pad.h5\" (command line) became squares with "
      "--image-fit pad, but those of checkpoint run/checkpoints/step_00000002 with "
      "--image-fit stretch; tokenize with --image-fit stretch, or continue on these with "
      "data.replaced=true");
  expect_refused("eval images.toml --data pad.h5",
                 "pad.h5: its images became squares with --image-fit pad, but those of checkpoint "
                 "run/checkpoints/step_00000002 with --image-fit stretch");
  expect_refused("generate images.toml --prompts questions.jsonl --image-fit pad",
                 "--image-fit pad: questions.jsonl:1 has an image, but images of the training "
                 "became squares with --image-fit stretch; leave --image-fit out");
  ASSERT_EQ(run("trireme train images.toml run.steps=4 checkpoint.restart=latest data.train=pad.h5 "
                "data.replaced=true"),
            0)
      << err();
  EXPECT_NE(err().find("accepted, because data.replaced = true"), std::string::npos) << err();
  ASSERT_EQ(run("trireme generate images.toml --prompts questions.jsonl --tokens 1"), 0) << err();
  EXPECT_NE(err().find("with --image-fit pad, as in the training"), std::string::npos) << err();
}

/// An export's image processor has the fit, and an import takes it from there.
TEST_F(ImageRuns, ExportAndImportTheFit) {
  const std::string tokenize =
      "trireme tokenize --tokenizer tokenizer.json --images 12 --image-tokens 4 lines.jsonl ";
  ASSERT_EQ(run("trireme train images.toml run.steps=1"), 0) << err();
  ASSERT_EQ(run("trireme export run exported"), 0) << err();
  EXPECT_NE(out().find("preprocessor_config.json: prepares images as --image-fit stretch of the "
                       "training"),
            std::string::npos)
      << out();
  const std::string processor = file("exported/preprocessor_config.json");
  EXPECT_NE(processor.find("\"do_center_crop\": false"), std::string::npos) << processor;
  ASSERT_EQ(run("trireme import exported images.toml run.directory=again"), 0) << err();
  EXPECT_NE(out().find("--images 12 --image-fit stretch"), std::string::npos) << out();
  ASSERT_EQ(run(tokenize + "-o pad.h5 --image-fit pad"), 0) << err();
  const std::string restart =
      "trireme train images.toml run.directory=again checkpoint.restart=latest run.steps=1 "
      "data.train=pad.h5 ";
  EXPECT_EQ(run(restart), 2) << out();
  EXPECT_NE(err().find("but those of checkpoint again/checkpoints/step_00000000 with --image-fit "
                       "stretch"),
            std::string::npos)
      << err();
  ASSERT_EQ(run("trireme export again same"), 0) << err();
  EXPECT_EQ(file("same/preprocessor_config.json"), processor);
  ASSERT_EQ(run(restart + "data.replaced=true"), 0) << err();
  ASSERT_EQ(run("trireme export again padded"), 0) << err();
  EXPECT_NE(out().find("no preprocessor_config.json, because no image processor prepares images "
                       "with --image-fit pad"),
            std::string::npos)
      << out();
  EXPECT_EQ(run("ls padded/preprocessor_config.json"), 2);
}

/// Texts of evaluations are those of generate on each layout, and the report shows their images.
TEST_F(ImageRuns, ShowTextsOfEvaluations) {
  const std::string prompts = " run.prompts=questions.jsonl run.prompt_tokens=3 run.steps=6 ";
  std::string texts;
  for (const auto& [ranks, keys] :
       std::vector<std::pair<int, std::string>>{{1, "run.evaluate_every=3"},
                                                {2, "run.evaluate_every=3 parallel.pipeline=2"},
                                                {2, "run.evaluate_every=3 parallel.tensor=2"}}) {
    SCOPED_TRACE(keys);
    ASSERT_EQ(
        run(text(TRIREME_MPIEXEC, " -n ", ranks, " trireme train images.toml", prompts, keys)), 0)
        << err();
    EXPECT_NE(out().find("texts 6 prompts of questions.jsonl"), std::string::npos) << out();
    if (texts.empty()) texts = file("run/texts.jsonl");
    EXPECT_EQ(file("run/texts.jsonl"), texts);
  }
  EXPECT_EQ(occurrences(texts, "\n"), 12) << texts;
  EXPECT_EQ(occurrences(texts, R"("images":["i0.npy"],"image_fit":"stretch")"), 2) << texts;
  ASSERT_EQ(run("trireme generate images.toml --prompts questions.jsonl --tokens 3 --temperature 0 "
                "-o last.jsonl"),
            0)
      << err();
  EXPECT_EQ(texts.substr(texts.find("{\"step\":6")), file("last.jsonl"));
  folder_.write("gone.jsonl", R"({"image": "gone.npy", "prompt": "Is it?"})");
  for (const char* command : {"train", "check"}) {
    EXPECT_EQ(run(text("trireme ", command, " images.toml run.prompts=gone.jsonl")), 2) << out();
    EXPECT_NE(err().find("[run] prompts (command line): gone.jsonl:1"), std::string::npos) << err();
  }
  std::filesystem::remove(folder_.file("i5.npy"));  // a report shows the path of a missing file
  ASSERT_EQ(run("trireme report run -o report.html"), 0) << err();
  const std::string page = file("report.html");
  EXPECT_EQ(occurrences(page, "data:image/bmp;base64,"), 5);
  EXPECT_EQ(occurrences(page,
                        "<span class=\"image\" style=\"background-image:var(--image-0)\" "
                        "role=\"img\" aria-label=\"i0.npy\""),
            2);
  EXPECT_EQ(occurrences(page, "[i5.npy] "), 2);
  EXPECT_EQ(run("'" TRIREME_PYTHON "' -B '" TRIREME_SOURCE_DIR
                "/tests/commands/check_page.py' report.html"),
            0)
      << out();
}

/// An answer to a conversation with an image is the same however the prompt names the image.
TEST_F(ImageRuns, AnswerConversations) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines +=
        text(R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "i)", i,
             R"(.npy"}, {"type": "text", "text": "Is it?"}]}, {"role": "assistant", "content": ")",
             greys[i % 3], "\"}]}\n");
  folder_.write("chats.jsonl", lines);
  ASSERT_EQ(run("trireme tokenize -o chats.h5 --train-bpe 300 --tokenizer chat.json --chat chatml "
                "--images 12 --image-tokens 4 chats.jsonl"),
            0)
      << err();
  const std::string deck =
      " images.toml data.train=chats.h5 data.tokenizer=chat.json "
      "model.sequence=64 run.directory=chat ";
  ASSERT_EQ(run("trireme train" + deck + "run.steps=150"), 0) << err();
  folder_.write("parts.jsonl",
                lines.substr(0, lines.find("}, {\"role\": \"assistant\"")) + "}]}\n" +
                    R"({"image": "i1.npy", "messages": [{"role": "user", "content": "Is it?"}]})"
                    "\n"
                    R"({"image": "i2.npy", "prompt": "Is it?"})"
                    "\n");
  const std::string generate =
      "trireme generate" + deck + "--chat chatml --temperature 0 --tokens 5 ";
  ASSERT_EQ(run(generate + "--prompts parts.jsonl -o answers.jsonl"), 0) << err();
  for (const char* grey : greys)
    EXPECT_EQ(occurrences(file("answers.jsonl"), text("\"text\":\"", grey, "\"")), 1)
        << file("answers.jsonl");
  ASSERT_EQ(run(generate + "--prompt 'Is it?' --image i2.npy"), 0) << err();
  EXPECT_NE(out().find("light"), std::string::npos) << out();
  for (const auto& [words, part] : std::vector<std::pair<std::string, std::string>>{
           {"<image> or <image>?", "the prompt has 1 image, but <image> 2 times"},
           {"<|im_end|>", "remove it: a message could end its turn with it"}}) {
    EXPECT_EQ(run(generate + "--image i2.npy --prompt '" + words + "'"), 2) << out();
    EXPECT_NE(err().find(part), std::string::npos) << err();
  }
}

TEST_F(ImageRuns, ReportOneErrorPerMistake) {
  ASSERT_EQ(run("trireme train images.toml run.steps=1"), 0) << err();
  folder_.write("two.jsonl", R"({"images": ["i0.npy", "i1.npy"], "prompt": "Is it?"})");
  folder_.write("marks.jsonl", R"({"image": "i0.npy", "prompt": "<image> is <image>?"})");
  folder_.write("gone.jsonl", R"({"image": "gone.npy", "prompt": "Is it?"})");
  for (const auto& [arguments, part] : std::vector<std::pair<std::string, std::string>>{
           {"generate images.toml --prompts two.jsonl",
            "two.jsonl:1 has 2 images, but [vision] images = 1; give fewer, or set images = 2"},
           {"generate images.toml --prompts marks.jsonl",
            "marks.jsonl:1 has 1 image, but <image> 2 times"},
           {"generate images.toml --prompts gone.jsonl", "gone.npy"},
           {"generate images.toml --prompt x --image i0.npy --image-token '<picture>'",
            "has no special token <picture>; give one with --image-token"},
           {"generate images.toml --prompt x --image i0.npy --image-token '<|endoftext|>'",
            "but the model was trained with token"},
           {"train images.toml vision.image=6 vision.patch=3",
            "t.h5: its images have sides of 12 pixels, but [vision] image = 6"},
           {"train images.toml model.sequence=5", "its longest document has"},
           {"train images.toml vision.layers=0 vision.hidden=0 vision.heads=0 vision.image=0 "
            "vision.patch=0",
            "t.h5: has images, which this deck's model does not see"},
           {"eval images.toml --data t.h5 vision.family=siglip", "[vision] family"},
           {"eval images.toml --tasks two.jsonl", "--tasks has no images"}}) {
    SCOPED_TRACE(arguments);
    EXPECT_EQ(run("trireme " + arguments), 2) << out();
    EXPECT_NE(err().find(part), std::string::npos) << err();
  }
}

}  // namespace
}  // namespace trireme::commands
