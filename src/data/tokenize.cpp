#include <trireme/base/check.hpp>
#include <trireme/base/philox.hpp>
#include <trireme/data/document_splitter.hpp>
#include <trireme/data/token_file_writer.hpp>
#include <trireme/data/tokenize.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/io/text_reader.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t split_stream = 1u << 27;  // apart from the rounds of the sample permutation
constexpr std::size_t read_bytes = 256 << 10;

/// Sorts documents into the two files as their text streams by.
class Documents {
 public:
  Documents(const TokenizeOptions& options, const Tokenizer& tokenizer)
      : options_(options),
        tokenizer_(tokenizer),
        encoder_(tokenizer.encoder({options.special_tokens})),
        train_(options.output, tokenizer.name(), tokenizer.vocabulary()) {
    if (!options.validation_output.empty())
      validation_ = std::make_unique<TokenFileWriter>(options.validation_output, tokenizer.name(),
                                                      tokenizer.vocabulary());
  }

  void piece(std::string_view bytes) {
    if (current_ == nullptr)
      current_ =
          validation_ && chosen_for_validation(options_.seed, number_, options_.validation_fraction)
              ? validation_.get()
              : &train_;
    ids_.clear();
    encoder_->feed(bytes, ids_);
    current_->append(ids_);
    text_bytes_ += std::ssize(bytes);
  }

  void end() {
    if (current_ == nullptr) return;  // an empty document
    ids_.clear();
    encoder_->finish(ids_);
    ids_.push_back(tokenizer_.end_of_document());
    current_->append(ids_);
    current_->end_document(text_bytes_);
    current_ = nullptr;
    text_bytes_ = 0;
    ++number_;
  }

  void commit() {
    check_usage(number_ > 0, "no text in ", join(options_.inputs, ", "), ": all of it is empty");
    const std::string remedy =
        "; choose another --validation-fraction or --seed, or cut documents smaller with "
        "--document-separator";
    check_usage(train_.documents() > 0, options_.output, ": none of the ", number_,
                " documents is left for training", remedy);
    check_usage(!validation_ || validation_->documents() > 0, options_.validation_output,
                ": none of the ", number_, " documents was chosen for validation", remedy);
    const std::string sources = join(options_.inputs, "\n");
    if (validation_) validation_->commit(sources);
    train_.commit(sources);
  }

  TokenizedPart train() const { return part(train_); }
  TokenizedPart validation() const { return validation_ ? part(*validation_) : TokenizedPart{}; }

 private:
  static TokenizedPart part(const TokenFileWriter& file) {
    return {file.documents(), file.tokens(), file.text_bytes()};
  }

  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<Encoder> encoder_;
  TokenFileWriter train_;
  std::unique_ptr<TokenFileWriter> validation_;
  TokenFileWriter* current_ = nullptr;  // of the document that has begun
  std::vector<std::int32_t> ids_;
  std::int64_t text_bytes_ = 0;  // of the current document
  std::int64_t number_ = 0;      // of documents that are not empty
};

void check_options(const TokenizeOptions& o) {
  if (o.validation_output.empty()) return;
  check_usage(o.validation_fraction > 0 && o.validation_fraction < 1, "--validation-fraction ",
              o.validation_fraction, ", expected between 0 and 1");
  check_usage(fs::weakly_canonical(o.output) != fs::weakly_canonical(o.validation_output),
              "training and validation tokens cannot both go to ", o.output);
}

bool is_one_of(const fs::path& file, const std::vector<std::string>& others) {
  return std::any_of(others.begin(), others.end(), [&](const std::string& other) {
    std::error_code missing;
    return fs::equivalent(file, other, missing);
  });
}

std::vector<std::string> files_below(const std::string& folder,
                                     const std::vector<std::string>& outputs) {
  std::vector<std::string> files;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file() && !is_one_of(entry.path(), outputs))
        files.push_back(entry.path().string());
  } catch (const fs::filesystem_error& error) {  // names the folder below that cannot be opened
    throw UsageError(text(folder, ": cannot list its files: ", error.what()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

bool chosen_for_validation(std::uint64_t seed, std::int64_t number, double fraction) {
  const RandomKey key{seed, Purpose::shuffle, split_stream, 0};
  return uniform_from_word(philox(key, static_cast<std::uint64_t>(number)).w[0]) < fraction;
}

std::vector<std::string> input_files(const std::vector<std::string>& inputs,
                                     const std::vector<std::string>& outputs) {
  std::vector<std::string> files;
  for (const auto& input : inputs) {
    std::error_code error;
    if (input == "-" || !fs::is_directory(input, error)) {
      check_usage(input == "-" || fs::exists(input, error), input, ": no such file or folder");
      check_usage(!is_one_of(input, outputs), input, ": is an input and an output; the tokens ",
                  "would take the text's place");
      files.push_back(input);
      continue;
    }
    auto found = files_below(input, outputs);
    check_usage(!found.empty(), input, ": no files in this folder");
    std::move(found.begin(), found.end(), std::back_inserter(files));
  }
  return files;
}

TokenizeSummary tokenize(const TokenizeOptions& options, const TokenizeProgress& progress) {
  check_options(options);
  const auto tokenizer = make_tokenizer(options.tokenizer);
  DocumentSplitter splitter(options.document_separator);
  const auto files = input_files(options.inputs, {options.output, options.validation_output});
  Documents documents(options, *tokenizer);
  const DocumentSplitter::Sink sink{[&](std::string_view bytes) { documents.piece(bytes); },
                                    [&] { documents.end(); }};
  std::vector<char> buffer(read_bytes);
  std::int64_t total_bytes = 0;
  for (const auto& path : files) {
    io::TextReader reader(path);
    while (const std::size_t bytes = reader.read(buffer)) {
      splitter.feed({buffer.data(), bytes}, sink);
      total_bytes += static_cast<std::int64_t>(bytes);
      progress(total_bytes);
    }
    splitter.finish(sink);
  }
  documents.commit();
  return {std::ssize(files), documents.train(), documents.validation()};
}

}  // namespace trireme::data
