#include <trireme/base/check.hpp>
#include <trireme/data/document_splitter.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/data/tokenize.hpp>
#include <trireme/data/tokenizer.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <zlib.h>

#include <filesystem>
#include <numeric>
#include <random>
#include <vector>

namespace trireme::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

std::string gzipped(const TemporaryFolder& folder, const std::string& name,
                    const std::string& content) {
  const auto path = folder.file(name);
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
  return path;
}

std::vector<std::string> split_documents(const std::string& separator, const std::string& content,
                                         std::size_t piece) {
  std::vector<std::string> documents(1);
  DocumentSplitter splitter(separator);
  const DocumentSplitter::Sink sink{[&](std::string_view bytes) { documents.back() += bytes; },
                                    [&] { documents.emplace_back(); }};
  for (std::size_t at = 0; at < content.size(); at += piece)
    splitter.feed(std::string_view(content).substr(at, piece), sink);
  splitter.finish(sink);
  documents.pop_back();
  return documents;
}

std::vector<std::string> documents_of(const std::string& path) {
  const TokenFile file(path);
  const auto tokenizer = make_tokenizer(file.tokenizer());
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(file.documents() + 1));
  file.read_document_offsets(0, offsets);
  std::vector<std::string> documents;
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(offsets[d + 1] - offsets[d]));
    file.read(offsets[d], ids);
    EXPECT_EQ(ids.back(), tokenizer->end_of_document());
    tokenizer->decode(ids, documents.emplace_back());
  }
  return documents;
}

TokenizeSummary run(const TokenizeOptions& options) {
  return tokenize(options, [](std::int64_t) {});
}

TEST(ByteTokenizer, RoundTripsTextInPieces) {
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_EQ(tokenizer->vocabulary(), 257);
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  std::vector<std::int32_t> ids;
  tokenizer->encode(all.substr(0, 100), ids);
  tokenizer->encode(all.substr(100), ids);
  ids.push_back(tokenizer->end_of_document());
  std::string decoded;
  tokenizer->decode(ids, decoded);
  EXPECT_EQ(decoded, all);
  const std::vector<std::int32_t> outside{257};
  EXPECT_THROW(tokenizer->decode(outside, decoded), Error);
  EXPECT_THROW(make_tokenizer("words"), UsageError);
}

TEST(DocumentSplitter, SplitDoesNotDependOnTheChunks) {
  const std::vector<std::string> separators{
      "",   "\\n\\n(?=\\S)", "\\n",    "(?<=\\n)(?=a)",  "a+", "^a",       "(?m)^a", "a\\z",
      "b$", "(?m)b$",        "\\bab?", "(?<=ab\\n)\\n*", "x*", "a|ab|abb", "\\Aa",   "\\n{2,}"};
  std::mt19937 random(1);
  for (int trial = 0; trial < 40; ++trial) {
    std::string content;
    const auto length = random() % 60;
    for (unsigned i = 0; i < length; ++i) content += "ab\n \nx"[random() % 6];
    for (const auto& separator : separators) {
      const auto whole = split_documents(separator, content, 1000);
      for (const std::size_t piece : {1u, 2u, 3u, 7u, 20u})
        ASSERT_EQ(split_documents(separator, content, piece), whole)
            << separator << " on " << content;
    }
  }
}

TEST(DocumentSplitter, SplitsAtSeparators) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(split_documents("\\n\\n(?=\\S)", "one\n\n two\n\nthree\n\n", 4),
            (Strings{"one\n\n two", "three\n\n"}));
  EXPECT_EQ(split_documents("(?=#)", "#a#b", 1), (Strings{"", "#a", "#b"}));
  EXPECT_EQ(split_documents(",", ",a,,b,", 2), (Strings{"", "a", "", "b", ""}));
  EXPECT_EQ(split_documents("", "a,b", 1), Strings{"a,b"});
  EXPECT_EQ(split_documents(",", "", 1), Strings{});
}

TEST(DocumentSplitter, SplitsLongTextsAcrossBuffers) {
  std::string content;  // 300 KiB: the buffer is trimmed many times
  for (int i = 0; i < 30000; ++i) content += text("line ", i, i % 7 == 0 ? "\n\n" : "\n");
  for (const auto* separator : {"\\n\\n", "(?<=9\\n)", "^line", "(?m)^line 1", "\\Aline"})
    EXPECT_EQ(split_documents(separator, content, 1000),
              split_documents(separator, content, content.size()))
        << separator;
}

TEST(DocumentSplitter, RejectsInvalidAndUnboundedExpressions) {
  expect_mentions(message_of([] { DocumentSplitter("(ab"); }), {"(ab", "character 3"});
  EXPECT_THROW(split_documents("(?s)a.*b", std::string(9 << 20, 'a'), 1 << 20), UsageError);
  EXPECT_THROW(DocumentSplitter("(*UTF)a"), UsageError);
}

/// Too few documents to choose from: the end of the text is held out, at a line end.
TEST(Tokenize, HoldsOutTheEndOfOneText) {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 200; ++i) content += "line " + std::to_string(i) + "\n";
  const auto tokenized = [&](const std::vector<std::string>& inputs, double fraction) {
    TokenizeOptions options;
    options.inputs = inputs;
    options.output = folder.file("train.h5");
    options.validation_output = folder.file("validation.h5");
    options.validation_fraction = fraction;
    return tokenize(options, [](std::int64_t) {});
  };
  const auto texts = [&](const char* file) {
    const auto documents = documents_of(folder.file(file));
    return std::accumulate(documents.begin(), documents.end(), std::string());
  };
  const std::vector<std::string> one{folder.write("a.txt", content)};
  for (const std::vector<std::string>& inputs :
       {one, std::vector<std::string>{gzipped(folder, "a.gz", content)}})
    for (const double fraction : {0.02, 0.5}) {
      const auto summary = tokenized(inputs, fraction);
      EXPECT_FALSE(summary.end_held_out.empty());
      const std::string train = texts("train.h5");
      const std::string held_out = texts("validation.h5");
      EXPECT_EQ(train + held_out, content);
      EXPECT_EQ(train.back(), '\n');
      EXPECT_NEAR(static_cast<double>(held_out.size()),
                  fraction * static_cast<double>(content.size()), 9);  // a line
    }
  // The division may be in any of several files, or between two.
  const std::vector<std::string> three{folder.write("x", content), folder.write("y", "one line"),
                                       folder.write("z", content)};
  EXPECT_FALSE(tokenized(three, 0.02).end_held_out.empty());
  EXPECT_EQ(documents_of(folder.file("train.h5")).size(), 3u);
  EXPECT_EQ(texts("train.h5") + texts("validation.h5"), content + "one line" + content);
  const std::vector<std::string> two{folder.write("x", "one line"), folder.write("y", content)};
  tokenized(two, 0.9999);
  EXPECT_EQ(texts("train.h5"), "one line");
  // A last line of more than the fraction is held out whole.
  const std::string last(500, 'z');
  const std::string first(600, 'a');
  EXPECT_FALSE(
      tokenized({folder.write("a.txt", first + "\n" + last + "\n\n")}, 0.02).end_held_out.empty());
  EXPECT_EQ(texts("train.h5"), first + "\n");
  EXPECT_EQ(texts("validation.h5"), last + "\n\n");
  // There is no line end to divide at, or only one that leaves too little for training.
  EXPECT_THROW(tokenized({folder.write("a.txt", "title\n" + last)}, 0.02), UsageError);
  EXPECT_THROW(tokenized({folder.write("a.txt", std::string(5000, 'x'))}, 0.02), UsageError);
  // Enough files are divided as a whole.
  std::vector<std::string> many;
  for (int i = 0; i < 300; ++i) many.push_back(folder.write("f" + std::to_string(i), "x\ny\n"));
  EXPECT_TRUE(tokenized(many, 0.02).end_held_out.empty());
}

/// Too few JSON lines to choose from: the last ones are held out.
TEST(Tokenize, HoldsOutTheLastOfFewJsonLines) {
  const TemporaryFolder folder;
  TokenizeOptions options;
  options.output = folder.file("train.h5");
  options.validation_output = folder.file("validation.h5");
  options.validation_fraction = 0.02;
  const auto tokenized = [&](int lines) {
    std::string content = "\n";
    for (int i = 0; i < lines; ++i)
      content += "{\"text\": \"document " + std::to_string(i) + "\"}\n\n";
    options.inputs = {folder.write("a.jsonl", content)};
    return tokenize(options, [](std::int64_t) {}).end_held_out;
  };
  EXPECT_EQ(tokenized(20), "the last line");
  EXPECT_EQ(documents_of(folder.file("validation.h5")), std::vector<std::string>{"document 19"});
  EXPECT_EQ(documents_of(folder.file("train.h5")).size(), 19u);
  EXPECT_EQ(tokenized(400), "");
  options.validation_fraction = 0.9999;
  EXPECT_EQ(tokenized(3), "the last 2 lines");
  EXPECT_EQ(documents_of(folder.file("train.h5")), std::vector<std::string>{"document 0"});
  EXPECT_THROW(tokenized(1), UsageError);
}

/// The tokenizer learns from the text before the division, and is not left by a command that fails.
TEST(Tokenize, LearnsOnlyFromTrainingText) {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 500; ++i) content += "the quick brown fox\n";
  for (int i = 0; i < 500; ++i) content += "jackdaws love quartz\n";
  TokenizeOptions options;
  options.inputs = {folder.write("a.txt", content)};
  options.output = folder.file("train.h5");
  options.validation_output = folder.file("validation.h5");
  options.validation_fraction = 0.6;
  options.train_bpe = 300;
  tokenize(options, [](std::int64_t) {});
  const std::string vocabulary = read_file(folder.file("tokenizer.json"));
  EXPECT_NE(vocabulary.find("quick"), std::string::npos);
  EXPECT_EQ(vocabulary.find("jack"), std::string::npos);

  const TemporaryFolder other;
  options.inputs = {other.write("a.txt", std::string(5000, 'x'))};
  options.output = other.file("train.h5");
  options.validation_output = other.file("validation.h5");
  EXPECT_THROW(tokenize(options, [](std::int64_t) {}), UsageError);
  EXPECT_EQ(files_in(other), 1);
}

TEST(Tokenize, NamesFilesWithZeroBytes) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "in");
  folder.write("in/a.txt", "text");
  const auto binary = folder.write("in/b.bin", std::string("b\0\1", 3));
  const auto summary = run({.inputs = {folder.file("in")}, .output = folder.file("t.h5")});
  EXPECT_EQ(summary.binary, std::vector{binary});
  EXPECT_EQ(summary.train.text_bytes, 7);
}

TEST(Tokenize, ReadsFilesFoldersAndGzipInSortedOrder) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "in/deep");
  folder.write("in/b.txt", "second");
  folder.write("in/a.txt", "first");
  folder.write("in/empty.txt", "");
  gzipped(folder, "in/deep/c.gz", "third");
  folder.write("last", "fourth");
  const auto summary =
      run({.inputs = {folder.file("in"), folder.file("last")}, .output = folder.file("in/t.h5")});
  EXPECT_EQ(summary.files, 5);
  EXPECT_EQ(summary.train.documents, 4);
  EXPECT_EQ(summary.train.text_bytes, 22);
  EXPECT_EQ(summary.train.tokens, 26);
  const std::vector<std::string> expected{"first", "second", "third", "fourth"};
  EXPECT_EQ(documents_of(folder.file("in/t.h5")), expected);
  run({.inputs = {folder.file("in"), folder.file("last")}, .output = folder.file("in/t.h5")});
  EXPECT_EQ(documents_of(folder.file("in/t.h5")), expected) << "its own output is no input";
}

TEST(Tokenize, SplitsDocumentsBetweenTrainingAndValidation) {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 2000; ++i) content += text("document ", i, "\n\n");
  const auto input = folder.write("in.txt", content);
  TokenizeOptions options{.inputs = {input},
                          .output = folder.file("train.h5"),
                          .document_separator = "\\n\\n",
                          .validation_output = folder.file("validation.h5"),
                          .validation_fraction = 0.1,
                          .seed = 3};
  const auto summary = run(options);
  EXPECT_EQ(summary.train.documents + summary.validation.documents, 2000);
  // Binomial(2000, 0.1): mean 200, standard deviation 13.4; the tolerance is six deviations.
  EXPECT_NEAR(static_cast<double>(summary.validation.documents), 200, 81);
  const auto train = documents_of(options.output);
  const auto validation = documents_of(options.validation_output);
  std::size_t t = 0;
  std::size_t v = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto expected = text("document ", i);
    EXPECT_EQ(chosen_for_validation(3, i, 0.1) ? validation.at(v++) : train.at(t++), expected);
  }
  options.seed = 4;
  run(options);
  EXPECT_NE(documents_of(options.validation_output), validation);
}

TEST(Tokenize, ReportsInvalidInput) {
  const TemporaryFolder folder;
  const auto output = folder.file("t.h5");
  const auto message = [&](std::vector<std::string> inputs) {
    return message_of([&] { run({.inputs = std::move(inputs), .output = output}); });
  };
  const auto empty = folder.write("empty", "");
  expect_mentions(message({empty}), {empty, "empty"});
  expect_mentions(message({folder.file("missing")}), {folder.file("missing"), "no such file"});
  std::filesystem::create_directory(folder.path() / "folder");
  expect_mentions(message({folder.file("folder")}), {folder.file("folder"), "no files"});
  const auto good = gzipped(folder, "good.gz", std::string(100000, 'a') + text(1234567));
  const std::string packed = read_file(good);
  const auto cut = folder.write("cut.gz", packed.substr(0, packed.size() - 12));
  expect_mentions(message({cut}), {cut, "truncated"});
  std::string flipped = packed;
  flipped[packed.size() - 6] = static_cast<char>(flipped[packed.size() - 6] ^ 1);  // in the CRC
  const auto damaged = folder.write("damaged.gz", flipped);
  expect_mentions(message({damaged}), {damaged, "damaged"});
  const auto zstd = folder.write("a.zst", "\x28\xB5\x2F\xFD....");
  expect_mentions(message({zstd}), {zstd, "zstd -dc"});
  const auto pdf = folder.write("a.pdf", "%PDF-1.4\n1 0 obj\n");
  expect_mentions(message({pdf}),
                  {pdf, "is a PDF document", "pdftotext FILE - | trireme tokenize"});
  const auto utf16 = folder.write("a16.txt", std::string("\xFF\xFEh\0i\0", 6));
  expect_mentions(message({utf16}), {utf16, "is text in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"});
  const auto tokens = folder.file("tokens.h5");
  write_token_file(tokens, 3, 257);
  expect_mentions(message({tokens}), {tokens, "token file"});
  EXPECT_FALSE(std::filesystem::exists(output));
  EXPECT_EQ(files_in(folder), 9) << "temporary files are left behind";
}

/// A BPE with one token for each byte except 'z', so that "z" is an error.
std::string tokenizer_without_z(const TemporaryFolder& folder) {
  std::string vocab = R"("<|endoftext|>": 0)";
  for (char c = 'a'; c < 'z'; ++c) vocab += text(", \"", c, "\": ", c - 'a' + 1);
  return folder.write("tokenizer.json",
                      R"({"added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": true}],
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "model": {"merges": [], "vocab": {)" +
                          vocab + "}}}");
}

TEST(Tokenize, ReportsFileAndLineOfAnInvalidText) {
  const TemporaryFolder folder;
  const auto output = folder.file("t.h5");
  const auto tokenizer = tokenizer_without_z(folder);
  const auto good = folder.write("a.txt", "abc");
  const auto bad = folder.write("b.txt", "xyz");
  const auto lines = folder.write("c.jsonl", "{\"text\": \"abc\"}\n\n{\"text\": \"xyz\"}\n");
  const auto turns = folder.write("d.jsonl", R"({"prompt": "abc", "completion": "xyz"})");
  const auto message = [&](std::vector<std::string> inputs, const std::string& separator = "") {
    return message_of([&] {
      run({.inputs = std::move(inputs),
           .output = output,
           .tokenizer = tokenizer,
           .document_separator = separator});
    });
  };
  const std::string byte = "has no token for byte 122";
  EXPECT_TRUE(message({good, bad}).starts_with(bad + ": ")) << message({good, bad});
  expect_mentions(message({good, bad}), {byte});
  EXPECT_TRUE(message({good, lines}).starts_with(lines + ":3: ")) << message({good, lines});
  expect_mentions(message({good, lines}), {byte});
  EXPECT_TRUE(message({turns}).starts_with(turns + ":1: ")) << message({turns});
  const auto late = folder.write("e.txt", std::string(9 << 20, 'a') + "b");
  expect_mentions(message({good, late}, "a+b"), {late, "longer than 8"});
  const auto half = folder.write("f.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\\ud83d\"}\n");
  expect_mentions(message({half}), {half + ":2: is not JSON: column 11: \\ud83d is half"});
  const auto nan = folder.write("g.jsonl", "{\"text\": \"a\", \"score\": NaN}\n");
  expect_mentions(message({nan}), {nan + ":1: is not JSON: column 24: NaN is not a JSON number"});
}

TEST(Tokenize, RejectsAnEmptySplit) {
  const TemporaryFolder folder;
  const auto input = folder.write("in.txt", "one document");
  const TokenizeOptions options{.inputs = {input},
                                .output = folder.file("t.h5"),
                                .validation_output = folder.file("v.h5"),
                                .validation_fraction = 0.5};
  expect_mentions(message_of([&] { run(options); }), {"--document-separator"});
  auto same = options;
  same.validation_output = same.output;
  EXPECT_THROW(run(same), UsageError);
  expect_mentions(message_of([&] { run({.inputs = {input}, .output = input}); }),
                  {input, "an input and an output"});
  auto all = options;
  all.validation_fraction = 1;
  EXPECT_THROW(run(all), UsageError);
  EXPECT_EQ(files_in(folder), 1);
}

/// A limit on file sizes simulates a full disk: the same calls fail, with another errno.
TEST(Tokenize, FullDiskNamesTheFileAndKeepsThePreviousOne) {
  const TemporaryFolder folder;
  const auto input = folder.write("in.txt", std::string(3 << 20, 'a'));
  const auto output = folder.write("t.h5", "former");
  signal(SIGXFSZ, SIG_IGN);
  rlimit former{};
  getrlimit(RLIMIT_FSIZE, &former);
  for (const rlim_t limit : {1u << 10, 1u << 20, 6u << 20, (6u << 20) + 8000}) {
    const rlimit small{limit, former.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string message = message_of([&] { run({.inputs = {input}, .output = output}); });
    setrlimit(RLIMIT_FSIZE, &former);
    expect_mentions(message, {output, "File too large"});
    EXPECT_EQ(read_file(output), "former");
    EXPECT_EQ(files_in(folder), 2) << "temporary files are left behind";
  }
  run({.inputs = {input}, .output = output});
  EXPECT_EQ(TokenFile(output).text_bytes(), 3 << 20);
}

}  // namespace
}  // namespace trireme::data
