#include <trireme/data/image_lines.hpp>
#include <trireme/data/instructions.hpp>
#include <trireme/data/json_lines.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/data/tokenize.hpp>
#include <trireme/io/image.hpp>
#include <trireme/io/image_formats.hpp>
#include <trireme/io/image_resize.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <random>

/// JSON lines with images: the places of images in texts, the pixels in token files, mistakes.
namespace trireme::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

constexpr std::int64_t copies = 4;

using Pixels = std::vector<std::vector<std::uint8_t>>;  ///< of images

struct Document {
  std::vector<std::int32_t> ids;
  std::vector<int> counted;
  Pixels images;
};

/// A folder with images a.png, b.jpg and c.npy, and a tokenizer with the tokens of images.
class ImageLines : public ::testing::Test {
 protected:
  ImageLines() {
    auto json = nlohmann::ordered_json::parse(read_file(golden_file("instructions/bpe.json")));
    for (const std::string name : {"<image>", "<begin>", "<end>"}) {
      auto token = json["added_tokens"][0];
      token["id"] = 700 + json["added_tokens"].size() - 1;
      token["content"] = name;
      json["added_tokens"].push_back(token);
    }
    folder_.write("tokenizer.json", json.dump());
    tokenizer_ = make_tokenizer(folder_.file("tokenizer.json"));
    folder_.write("a.png", read_file(golden_file("images/rgb8.png")));
    folder_.write("b.jpg", read_file(golden_file("images/colour_420.jpg")));
    folder_.write("c.npy", read_file(golden_file("images/tall.npy")));
    options_.output = folder_.file("out.h5");
    options_.tokenizer = folder_.file("tokenizer.json");
    options_.images = TokenizeImages{12, io::ImageFit::crop, {"<image>", copies, "", ""}};
  }

  void SetUp() override {
    if (!io::decodes_png() || !io::decodes_jpeg()) GTEST_SKIP() << "built without the libraries";
  }

  /// Tokenizes lines. Errors are thrown.
  void run(const std::string& lines, ChatFormat chat = ChatFormat::none) {
    options_.inputs = {folder_.write("lines.jsonl", lines)};
    options_.chat = chat;
    tokenize(options_, [](auto) {});
  }

  std::string error(const std::string& line, ChatFormat chat = ChatFormat::none) {
    return message_of([&] {
      run(R"({"image": "a.png", "text": "fine"})"
          "\n" +
              line + "\n",
          chat);
    });
  }

  std::vector<Document> documents(const std::string& path) {
    const TokenFile file(path);
    file.verify();
    std::vector<Document> all;
    for (std::int64_t d = 0; d < file.documents(); ++d) {
      std::vector<std::int64_t> place(2);
      file.read_document_offsets(d, place);
      Document document;
      document.ids.resize(static_cast<std::size_t>(place[1] - place[0]));
      file.read(place[0], document.ids);
      std::vector<std::int32_t> mask = document.ids;
      file.mask(place[0], mask);
      for (const std::int32_t id : mask) document.counted.push_back(id == uncounted ? 0 : 1);
      if (const auto form = file.images()) {
        file.read_document_images(d, place);
        for (std::int64_t i = place[0]; i < place[1]; ++i) {
          document.images.emplace_back(static_cast<std::size_t>(form->image_bytes()));
          file.read_images(i, document.images.back());
        }
      }
      all.push_back(std::move(document));
    }
    return all;
  }

  /// Ids of a text in which {} is an image, with the end of the document.
  std::vector<std::int32_t> ids(std::string words) {
    for (std::size_t at = 0; (at = words.find("{}")) != words.npos;) {
      std::string all;
      for (std::int64_t i = 0; i < copies; ++i) all += "<image>";
      words.replace(at, 2, all);
    }
    std::vector<std::int32_t> out;
    tokenizer_->encode(words, out, {true});
    out.push_back(tokenizer_->end_of_document());
    return out;
  }

  std::vector<std::uint8_t> pixels(const std::string& name) {
    return io::fitted(io::read_image(folder_.file(name)), options_.images->size,
                      options_.images->fit)
        .pixels;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenizeOptions options_;
};

TEST_F(ImageLines, PromptsHaveImagesAtTheirMarksOrFirst) {
  run(R"({"image": "a.png", "prompt": "What is it?", "completion": " A cat."}
{"images": ["b.jpg", "c.npy"], "prompt": "First <image> then <image>.", "completion": " Yes"}
{"prompt": "No image", "completion": " here"}
{"images": ["c.npy", "a.png"], "prompt": "Both", "completion": " same"}
{"image": "b.jpg", "text": "A text with <image> in it"}
{"image": null, "images": [], "text": "plain"}
)");
  const auto all = documents(options_.output);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].ids, ids("{}What is it? A cat."));
  EXPECT_EQ(all[1].ids, ids("First {} then {}. Yes"));
  EXPECT_EQ(all[2].ids, ids("No image here"));
  EXPECT_EQ(all[3].ids, ids("{}{}Both same"));
  EXPECT_EQ(all[4].ids, ids("A text with {} in it"));
  EXPECT_EQ(all[0].images, Pixels{pixels("a.png")});
  EXPECT_EQ(all[1].images, (Pixels{pixels("b.jpg"), pixels("c.npy")}));
  EXPECT_TRUE(all[2].images.empty());
  EXPECT_EQ(all[3].images, (Pixels{pixels("c.npy"), pixels("a.png")}));
  EXPECT_EQ(all[4].images, Pixels{pixels("b.jpg")});
  EXPECT_EQ(TokenFile(options_.output).images()->most_per_document, 2);
  // Image tokens and prompts do not count.
  const auto image = tokenizer_->special_token("<image>");
  for (const Document& d : all)
    for (std::size_t i = 0; i < d.ids.size(); ++i)
      if (d.ids[i] == image) {
        EXPECT_EQ(d.counted[i], 0);
      }
  EXPECT_EQ(std::ranges::count(all[0].counted, 1), std::ssize(ids(" A cat.")));
  EXPECT_EQ(std::ranges::count(all[4].counted, 0), copies);
}

TEST_F(ImageLines, TextBytesLeaveImagesOut) {
  run(R"({"image": "a.png", "prompt": "abc", "completion": "de"})");
  EXPECT_EQ(TokenFile(options_.output).text_bytes(), 5);
}

TEST_F(ImageLines, SurroundingsAreTextWithSpecialTokens) {
  options_.images->text.begin = "\n<begin>";
  options_.images->text.end = "<end>\n";
  run(R"({"image": "a.png", "prompt": "It is <image>.", "completion": " So."})");
  const auto all = documents(options_.output);
  EXPECT_EQ(all[0].ids, ids("It is \n<begin>{}<end>\n. So."));
  EXPECT_EQ(std::ranges::count(all[0].counted, 1), std::ssize(ids(" So.")));
}

TEST_F(ImageLines, ConversationsHaveImagesInAllForms) {
  options_.images->text.end = "\n";
  const std::string answer = R"({"role": "assistant", "content": "A cat."}]})"
                             "\n";
  const std::string begin = R"({"messages": [{"role": "user", "content": )";
  const auto with = [&](const std::string& images, const std::string& content) {
    return R"({"images": )" + images + R"(, "messages": [{"role": "user", "content": )" + content +
           "}, " + answer;
  };
  const std::string part = R"({"type": "image", "image": "a.png"})";
  const std::string words = R"({"type": "text", "text": "What?"})";
  run(begin + "[" + part + ", " + words + "]}, " + answer +  //
          begin + R"([{"type": "image", "path": "a.png", "text": null}, )" + words + "]}, " +
          answer + with(R"(["a.png"])", R"([{"type": "image"}, )" + words + "]") +  //
          with(R"(["a.png"])", R"("<image>What?")") +                               //
          with(R"(["a.png"])", R"("What?")") +                                      //
          begin + "[" + words + "]}, " + answer,
      ChatFormat::chatml);
  const auto all = documents(options_.output);
  ASSERT_EQ(all.size(), 6u);
  const std::string end = "What?<|im_end|>\n<|im_start|>assistant\nA cat.<|im_end|>\n";
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(all[i].ids, ids("<|im_start|>user\n{}\n" + end)) << i;
    EXPECT_EQ(all[i].images, Pixels{pixels("a.png")}) << i;
    // The answer and the token that ends it.
    std::vector<std::int32_t> counted;
    for (std::size_t t = 0; t < all[i].ids.size(); ++t)
      if (all[i].counted[t] == 1) counted.push_back(all[i].ids[t]);
    auto expected = ids("A cat.<|im_end|>");
    expected.pop_back();
    EXPECT_EQ(counted, expected) << i;
  }
  EXPECT_EQ(all[5].ids, ids("<|im_start|>user\n" + end));
}

TEST_F(ImageLines, MistakesNameTheLine) {
  const auto expect = [&](const std::string& line, const std::vector<std::string>& words,
                          ChatFormat chat = ChatFormat::none) {
    const std::string message = error(line, chat);
    EXPECT_TRUE(message.starts_with(folder_.file("lines.jsonl") + ":2: ")) << message;
    expect_mentions(message, words);
  };
  const std::string rest = R"("completion": "x"})";
  expect(R"({"image": "a.png", "prompt": "<image> <image>", )" + rest, {"1 image", "2 times"});
  expect(R"({"prompt": "a <image>", )" + rest, {"0 images", "<image> 1 time"});
  expect(R"({"text": "a <image>"})", {"0 images"});
  expect(R"({"images": ["a.png", "b.jpg"], "prompt": "<image>", )" + rest, {"2 images"});
  expect(R"({"image": "a.png", "prompt": "", "completion": "<image>"})",
         {"\"completion\" contains <image>"});
  expect(R"({"image": "a.png", "images": ["a.png"], "prompt": "", )" + rest, {"both"});
  expect(R"({"image": 3, "prompt": "", )" + rest, {"\"image\" is 3", "the path of a file"});
  expect(R"({"image": {"bytes": "x"}, "prompt": "", )" + rest, {"the path of a file"});
  expect(R"({"images": [1], "prompt": "", )" + rest, {"strings only"});
  expect(R"({"image": "https://a/b.png", "prompt": "", )" + rest, {"https://a/b.png", "download"});
  expect(R"({"image": "data:image/png;base64,AAAA", "prompt": "", )" + rest, {"download"});
  expect(R"({"image": "a\u0000.png", "prompt": "", )" + rest, {"zero byte"});
  expect(R"({"image": "", "prompt": "", )" + rest, {"empty path"});
  expect(R"({"image": "a.png", "prompt": "<|im_end|>", )" + rest,
         {"<|im_end|>", "--special-tokens"});
  expect(R"({"image": "a.png", "prompt": "", "completion": "<|im_end|>"})",
         {"<|im_end|>", "--special-tokens"});
  expect(R"({"image": "a.png", "source": "a", "target": "b"})", {"member \"image\""});
  expect(R"({"image": "missing.png", "prompt": "", )" + rest, {folder_.file("missing.png")});
  expect(R"({"image": "tokenizer.json", "prompt": "", )" + rest, {"no image of a known format"});
  expect(R"({"image": "..", "prompt": "", )" + rest, {".."});
  const auto chat = [&](const std::string& content, const std::string& members = "") {
    return "{" + members + R"("messages": [{"role": "user", "content": )" + content +
           R"(}, {"role": "assistant", "content": "x"}]})";
  };
  const auto chatml = ChatFormat::chatml;
  expect(chat(R"([{"type": "image"}])"), {"without a path"}, chatml);
  expect(chat(R"([{"type": "image", "image": "a.png"}])", R"("images": ["a.png"], )"),
         {"1 images in \"images\", but 0 parts"}, chatml);
  expect(chat(R"([{"type": "image", "image": "a.png"}, {"type": "text", "text": "<image>"}])"),
         {"1 image", "2 times"}, chatml);
  expect(chat(R"([{"type": "image_url", "image_url": {"url": "x"}}])"), {"neither"}, chatml);
  expect(chat(R"([{"type": "image", "image": "a.png", "detail": "low"}])"), {"member \"detail\""},
         chatml);
  expect(chat(R"([{"type": "text", "text": 3}])"), {"\"text\" that is not a string"}, chatml);
  expect(chat(R"([3])"), {"neither"}, chatml);
  expect(chat(R"("<image>")"), {"0 images"}, chatml);
  expect(R"({"images": ["a.png"], "messages": [{"role": "assistant", "content": "x"}]})",
         {"no message of role 'user'"}, chatml);
}

TEST_F(ImageLines, OptionsAreChecked) {
  const std::string line = R"({"image": "a.png", "text": "x"})";
  options_.images->text.copies = 0;
  expect_mentions(message_of([&] { run(line); }), {"--image-tokens N", "576"});
  options_.images->text.copies = 2;
  options_.images->text.token = "<picture>";
  expect_mentions(message_of([&] { run(line); }), {"no special token <picture>", "--image-token"});
  options_.images->text.token = "<|endoftext|>";
  expect_mentions(message_of([&] { run(line); }), {"<|endoftext|>", "ends documents"});
  options_.images->text.token = "<image>";
  options_.images->text.begin = "a <image>";
  expect_mentions(message_of([&] { run(line); }), {"--image-begin", "leave it out"});
  options_.images->text.begin = "";
  expect_mentions(message_of([&] { run(R"({"text": "x"})"); }), {"no line of", "has an image"});
  options_.images->size = 5000;
  expect_mentions(message_of([&] { run(line); }), {"--images 5000", "4096"});
  options_.images->size = 4;
  options_.tokenizer = "bytes";
  expect_mentions(message_of([&] { run(line); }), {"tokenizer bytes has no special token <image>"});
  options_.images = std::nullopt;
  expect_mentions(
      message_of([&] { run(R"({"image": "a.png", "prompt": "x", "completion": ""})"); }),
      {"lines.jsonl:1: ", "--images SIZE"});
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

/// Damaged lines are read or rejected with their number, and documents have the tokens of their
/// images.
TEST_F(ImageLines, DamagedLinesEndInAnErrorOrADocument) {
  InstructionEncoder encoder(*tokenizer_, ChatFormat::chatml, false, options_.images->text);
  const std::vector<std::string> lines{
      R"({"image": "a.png", "prompt": "What is <image>?", "completion": " A cat."})",
      R"({"images": ["a.png", "b.jpg"], "text": "<image> and <image>"})",
      R"({"images": ["b.jpg"], "messages": [{"role": "user", "content": [{"type": "image", )"
      R"("image": "a.png"}, {"type": "text", "text": "?"}, {"type": "image"}]}, )"
      R"({"role": "assistant", "content": "x"}]})"};
  std::mt19937 random(29);
  const auto image = tokenizer_->special_token("<image>");
  int documents_found = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    const auto path = folder_.write("m.jsonl", mutated(lines[random() % lines.size()], random));
    try {
      read_json_lines(path, instruction_form, [&](const JsonLine& line) {
        const CountedTokens found = encoder.encode(line);
        std::int64_t tokens = 0;
        for (const auto& [count, counted] : found.runs) tokens += count;
        EXPECT_EQ(tokens, std::ssize(found.ids));
        EXPECT_EQ(std::ranges::count(found.ids, image), std::ssize(found.images) * copies);
        ++documents_found;
      });
    } catch (const UsageError& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with(path + ":")) << error.what();
    }
  }
  EXPECT_GT(documents_found, 50);
  EXPECT_LT(documents_found, 1400);
}

/// Documents keep their order while threads decode; the error is that of the first damaged image.
TEST_F(ImageLines, DamagedImagesAmongManyNameTheirLine) {
  std::string lines;
  for (int i = 1; i <= 300; ++i)
    lines += i == 150   ? R"({"images": ["a.png", "bad.png"], "text": "x"})"
                          "\n"
             : i == 160 ? R"({"image": "worse.png", "text": "x"})"
                          "\n"
                        : R"({"image": "a.png", "text": "x"})"
                          "\n";
  folder_.write("bad.png", read_file(folder_.file("a.png")).substr(0, 200));
  const std::string message = message_of([&] { run(lines); });
  EXPECT_TRUE(message.starts_with(folder_.file("lines.jsonl") + ":150: " + folder_.file("bad.png")))
      << message;
  expect_mentions(message, {"damaged PNG file", "truncated"});
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

TEST_F(ImageLines, TextFilesFollowTheLinesBeforeThem) {
  const std::string line = R"({"image": "a.png", "text": "x"})";
  options_.inputs = {folder_.write("a.jsonl", line + "\n" + line), folder_.write("b.txt", "text"),
                     folder_.write("c.jsonl", line)};
  tokenize(options_, [](auto) {});
  const auto all = documents(options_.output);
  ASSERT_EQ(all.size(), 4u);
  for (const std::size_t i : {0u, 1u, 3u}) EXPECT_EQ(all[i].images, Pixels{pixels("a.png")}) << i;
  EXPECT_EQ(all[2].ids, ids("text"));
  EXPECT_TRUE(all[2].images.empty());
}

TEST_F(ImageLines, ValidationFilesHaveTheImagesOfTheirDocuments) {
  std::string lines;
  const std::vector<std::string> names{"a.png", "b.jpg", "c.npy"};
  for (int i = 0; i < 60; ++i) {
    auto images = nlohmann::json::array();
    for (int k = 0; k < i % 3; ++k) images.push_back(names[static_cast<std::size_t>(i + k) % 3]);
    lines += nlohmann::json{{"images", images}, {"text", text("Document ", i)}}.dump() + "\n";
  }
  options_.validation_output = folder_.file("validation.h5");
  options_.validation_fraction = 0.3;
  options_.images->fit = io::ImageFit::pad;
  run(lines);
  std::size_t documents_found = 0;
  std::int64_t images_found = 0;
  for (const auto& path : {options_.output, options_.validation_output})
    for (const Document& document : documents(path)) {
      std::string words;
      tokenizer_->decode(document.ids, words);
      const int i = std::stoi(words.substr(words.rfind(' ')));
      ASSERT_EQ(std::ssize(document.images), i % 3) << words;
      for (std::size_t k = 0; k < document.images.size(); ++k)
        EXPECT_EQ(document.images[k], pixels(names[(static_cast<std::size_t>(i) + k) % 3]));
      ++documents_found;
      images_found += std::ssize(document.images);
    }
  EXPECT_EQ(documents_found, 60u);
  EXPECT_EQ(images_found, 60);
}

TEST_F(ImageLines, TrainedTokenizersHaveTheImageTokens) {
  std::string lines;
  for (int i = 0; i < 50; ++i)
    lines += R"({"image": "a.png", "prompt": "<image> What is this?", "completion": " A cat."})"
             "\n";
  options_.tokenizer = folder_.file("trained.json");
  options_.train_bpe = 280;
  options_.images->text.begin = "\n<begin>";
  options_.images->text.end = "\n";
  run(lines);
  const auto trained = make_tokenizer(options_.tokenizer);
  EXPECT_GE(trained->special_token("<image>"), 0);
  EXPECT_GE(trained->special_token("<begin>"), 0);
  EXPECT_LT(trained->special_token("\n"), 0);
  for (std::int32_t id = 0; id < trained->vocabulary(); ++id) {
    std::string words;
    trained->decode(std::span(&id, 1), words);
    if (words == "<image>") continue;
    EXPECT_EQ(words.find("ima"), words.npos) << words;
  }
  EXPECT_EQ(TokenFile(options_.output).images()->images, 50);
}

}  // namespace
}  // namespace trireme::data
