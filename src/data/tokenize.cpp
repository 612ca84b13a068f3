// Streams text through a document splitter and an encoder into token files, or first trains a BPE.
#include <trireme/data/tokenize.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/philox.hpp>
#include <trireme/data/bpe_trainer.hpp>
#include <trireme/data/document_splitter.hpp>
#include <trireme/data/image_queue.hpp>
#include <trireme/data/instructions.hpp>
#include <trireme/data/json_lines.hpp>
#include <trireme/data/token_file_writer.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/data/tokenizer_json.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_image_tokens = 1 << 20;
constexpr std::uint32_t split_stream = 1u << 27;  // not a stream of the sample permutation
TokenizerSource source_of(const TokenizeOptions& options) {
  return {options.tokenizer, options.end_of_document};
}

bool has_json_lines(const TokenizeOptions& options, const std::string& path) {
  if (options.format != TextFormat::by_name) return options.format == TextFormat::jsonl;
  return path.ends_with(".jsonl") || path.ends_with(".jsonl.gz");
}

using UseLine = std::function<void(const JsonLine&, const std::string& path)>;

/// Divides documents between the training and the validation file by their numbers, or holds out
/// the end of the text or the last JSON lines for validation.
class Division {
 public:
  Division(const TokenizeOptions& options, const std::vector<std::string>& files)
      : options_(options) {
    if (options.validation_output.empty() || !options.document_separator.empty()) return;
    const auto is_json = [&](const std::string& path) { return has_json_lines(options, path); };
    if (std::ranges::find(files, "-") != files.end()) return;
    if (std::ranges::all_of(files, is_json)) {
      hold_out_lines(files);
      return;
    }
    if (std::ranges::any_of(files, is_json)) return;
    std::int64_t chosen = 0;
    for (std::int64_t i = 0; i < std::ssize(files); ++i) chosen += is_chosen(i) ? 1 : 0;
    if (chosen > 0 && chosen < std::ssize(files)) return;
    std::int64_t bytes = 0;
    std::int64_t line_end = -1;    // the last line end so far
    std::int64_t before_last = 0;  // the last line end before a character that is not white space
    std::vector<char> buffer(read_bytes);
    for (const std::string& path : files) {
      io::TextReader reader(path);
      while (const std::size_t more = reader.read(buffer))
        for (const char c : std::string_view(buffer.data(), more)) {
          if (c == '\n')
            line_end = bytes;
          else if (c != ' ' && c != '\t' && c != '\r')
            before_last = line_end;
          ++bytes;
        }
    }
    cut_ =
        static_cast<std::int64_t>(static_cast<double>(bytes) * (1 - options.validation_fraction));
    // Holds out at least the last non-blank line, if it begins in the second half.
    if (before_last >= bytes / 2) cut_ = std::min(cut_, before_last);
  }

  /// See TokenizeSummary::end_held_out.
  std::string end_held_out() const {
    if (is_by_place()) return "the end of the text, from a line end on";
    if (last_lines_ == 0) return "";
    return last_lines_ == 1 ? "the last line" : text("the last ", last_lines_, " lines");
  }

  /// Calls use(part, is_for_validation) for each part of `bytes`, and end() between two parts.
  template <class Use, class End>
  void divide(std::int64_t number, std::string_view bytes, const Use& use, const End& end) {
    if (!is_by_place()) return use(bytes, is_for_validation(number));
    const std::int64_t begin = std::exchange(read_, read_ + std::ssize(bytes));
    if (!held_out_ && read_ > cut_) {
      const auto from = static_cast<std::size_t>(std::max<std::int64_t>(0, cut_ - begin));
      const std::size_t line_end = bytes.find('\n', from);
      if (line_end != bytes.npos) {
        use(bytes.substr(0, line_end + 1), false);
        end();
        bytes.remove_prefix(line_end + 1);
        held_out_ = true;
      }
    }
    if (!bytes.empty()) use(bytes, held_out_);
  }
  /// Call after the last part of a document.
  void end_document() {
    if (is_by_place() && read_ >= cut_) held_out_ = true;
  }
  /// Whether the undivided document `number` goes to the validation file.
  bool is_for_validation(std::int64_t number) const {
    if (last_lines_ > 0) return number >= first_held_out_;
    return !options_.validation_output.empty() && is_chosen(number);
  }

 private:
  bool is_by_place() const { return cut_ >= 0; }

  /// Holds out the last lines if a choice among all lines would leave a file empty.
  void hold_out_lines(const std::vector<std::string>& files) {
    std::int64_t lines = 0;
    std::int64_t chosen = 0;
    std::vector<char> buffer(read_bytes);
    for (const std::string& path : files) {
      io::TextReader reader(path);
      bool blank = true;  // the line has had only white space so far
      const auto end_line = [&] {
        if (!blank) chosen += is_chosen(lines++) ? 1 : 0;
        blank = true;
      };
      while (const std::size_t more = reader.read(buffer)) {
        for (const char c : std::string_view(buffer.data(), more)) {
          if (c == '\n')
            end_line();
          else if (c != ' ' && c != '\t' && c != '\r')
            blank = false;
        }
        if (chosen > 0 && chosen < lines) return;
      }
      end_line();
    }
    if (lines < 2 || (chosen > 0 && chosen < lines)) return;
    const double share = options_.validation_fraction * static_cast<double>(lines);
    last_lines_ = std::clamp<std::int64_t>(std::llround(share), 1, lines - 1);
    first_held_out_ = lines - last_lines_;
  }

  bool is_chosen(std::int64_t number) const {
    return chosen_for_validation(options_.seed, number, options_.validation_fraction);
  }

  const TokenizeOptions& options_;
  std::int64_t cut_ = -1;  ///< bytes of text after which the next line end is searched; -1: none
  std::int64_t read_ = 0;
  bool held_out_ = false;        ///< all further text is held out for validation
  std::int64_t last_lines_ = 0;  ///< JSON lines held out at the end; 0: lines are chosen at random
  std::int64_t first_held_out_ = 0;
};

/// Writes documents to the training and the validation file.
class Documents {
 public:
  Documents(const TokenizeOptions& options, const Tokenizer& tokenizer, Division division)
      : options_(options),
        division_(std::move(division)),
        tokenizer_(tokenizer),
        encoder_(tokenizer.encoder({options.special_tokens})),
        train_(options.output, tokenizer.name(), tokenizer.vocabulary(), source_of(options),
               form_of_images()) {
    if (!options.validation_output.empty())
      validation_ = std::make_unique<TokenFileWriter>(options.validation_output, tokenizer.name(),
                                                      tokenizer.vocabulary(), source_of(options),
                                                      form_of_images());
    if (options.images)
      images_ = std::make_unique<ImageQueue>(options.images->size, options.images->fit);
  }

  void piece(std::string_view bytes) {
    division_.divide(
        number_, bytes,
        [&](std::string_view part, bool for_validation) { write(part, for_validation); },
        [&] { end_part(); });
  }

  void end() {
    end_part();
    division_.end_document();
  }

  /// `place`: of the line; `folder`: of its file.
  void add(CountedTokens document, const std::string& place, const std::string& folder) {
    if (document.ids.empty()) return;
    TokenFileWriter& file = division_.is_for_validation(number_) ? *validation_ : train_;
    if (images_)
      images_->push(std::move(document), file, place, folder);
    else
      append_tokens(file, document);
    ++number_;
  }
  /// Writes the documents whose images are not yet decoded. Call after the last document.
  void finish_images() {
    if (images_) images_->finish();
  }

  /// Completes the files. Calls `before` after both files are known to have documents.
  template <class Before>
  void commit(const Before& before) {
    check_usage(number_ > 0, "no text in ", join(options_.inputs, ", "),
                ": every input is empty; give files with text");
    const std::string remedy =
        number_ == 1
            ? "; give more text, or split it into documents with --document-separator"
            : "; choose another --validation-fraction or --seed, or split the text into more "
              "documents with --document-separator";
    const std::string none = number_ == 1 ? "the only document was not"
                                          : text("none of the ", number_, " documents was");
    check_usage(train_.documents() > 0, options_.output, ": ", none, " chosen for training",
                remedy);
    check_usage(!validation_ || validation_->documents() > 0, options_.validation_output, ": ",
                none, " chosen for validation", remedy);
    check_usage(!images_ || train_.images() + (validation_ ? validation_->images() : 0) > 0,
                "--images, but no line of ", join(options_.inputs, ", "),
                " has an image; write lines with \"image\" or \"images\", or leave out --images");
    before();
    const std::string sources = join(options_.inputs, "\n");
    if (validation_) validation_->commit(sources);
    train_.commit(sources);
  }

  TokenizeCounts train() const { return part(train_); }
  TokenizeCounts validation() const { return validation_ ? part(*validation_) : TokenizeCounts{}; }

 private:
  void write(std::string_view bytes, bool for_validation) {
    if (current_ == nullptr) {
      finish_images();  // earlier documents, which are written first
      current_ = for_validation ? validation_.get() : &train_;
    }
    ids_.clear();
    encoder_->feed(bytes, ids_);
    current_->append(ids_);
    text_bytes_ += std::ssize(bytes);
  }

  void end_part() {
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

  static TokenizeCounts part(const TokenFileWriter& file) {
    return {file.documents(), file.tokens(), file.text_bytes(), file.counted(), file.images()};
  }

  std::optional<ImageForm> form_of_images() const {
    if (!options_.images) return std::nullopt;
    const ImageText& form = options_.images->text;
    return ImageForm{options_.images->size,
                     0,
                     tokenizer_.special_token(form.token),
                     form.copies,
                     0,
                     std::string(io::name_of(options_.images->fit)),
                     std::string(io::image_resampling),
                     form.begin,
                     form.end};
  }

  const TokenizeOptions& options_;
  Division division_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<ImageQueue> images_;  ///< null without images
  TokenFileWriter train_;
  std::unique_ptr<TokenFileWriter> validation_;
  TokenFileWriter* current_ = nullptr;  // file of the document that has begun
  std::vector<std::int32_t> ids_;
  std::int64_t text_bytes_ = 0;  // bytes of text in the current document
  std::int64_t number_ = 0;      // number of the current document
};

/// Calls use_line(line, path of its file) for JSON lines. Returns TokenizeSummary::binary.
std::vector<std::string> read_documents(const TokenizeOptions& options,
                                        const std::vector<std::string>& files,
                                        const TokenizeProgress& progress,
                                        const DocumentSplitter::Sink& sink,
                                        const UseLine& use_line) {
  std::vector<std::string> binary;
  DocumentSplitter splitter(options.document_separator);
  std::vector<char> buffer(read_bytes);
  std::int64_t total_bytes = 0;
  for (const auto& path : files) {
    if (has_json_lines(options, path)) {
      const std::int64_t before = total_bytes;
      read_json_lines(
          path, instruction_form, [&](const JsonLine& line) { use_line(line, path); },
          [&](std::int64_t bytes) {
            total_bytes = before + bytes;
            progress(total_bytes);
          });
      continue;
    }
    const std::string place = path == "-" ? "standard input" : path;
    io::TextReader reader(path);
    bool begun = false;
    while (const std::size_t bytes = reader.read(buffer)) {
      if (!begun && std::memchr(buffer.data(), 0, bytes) != nullptr) binary.push_back(place);
      begun = true;
      with_place(place, [&] { splitter.feed({buffer.data(), bytes}, sink); });
      total_bytes += static_cast<std::int64_t>(bytes);
      progress(total_bytes);
    }
    with_place(place, [&] { splitter.finish(sink); });
  }
  return binary;
}

std::optional<ImageText> image_text_of(const TokenizeOptions& options) {
  if (!options.images) return std::nullopt;
  return options.images->text;
}

/// Appends the image token, and the beginning and the end of images if they are names <NAME>.
void add_image_tokens(const ImageText& images, std::vector<std::string_view>& special) {
  special.push_back(images.token);
  for (const std::string_view words :
       {std::string_view(images.begin), std::string_view(images.end)}) {
    const std::size_t first = words.find_first_not_of(" \t\n");
    if (first == words.npos) continue;
    const std::string_view name = words.substr(first, words.find_last_not_of(" \t\n") + 1 - first);
    if (name.starts_with('<') && name.ends_with('>') &&
        std::ranges::find(special, name) == special.end())
      special.push_back(name);
  }
}

/// Trains a BPE on the training documents and returns its tokenizer.json.
std::string learn_bpe(const TokenizeOptions& options, const std::vector<std::string>& files,
                      Division division, const TokenizeProgress& progress) {
  BpeTrainer trainer;
  const auto marks = image_text_of(options);
  std::int64_t number = 0;
  bool begun = false;
  const auto end = [&] {
    trainer.end_document();
    number += begun ? 1 : 0;
    begun = false;
  };
  read_documents(options, files, progress,
                 {[&](std::string_view bytes) {
                    division.divide(
                        number, bytes,
                        [&](std::string_view part, bool for_validation) {
                          begun = true;
                          if (!for_validation) trainer.feed(part);
                        },
                        end);
                  },
                  [&] {
                    end();
                    division.end_document();
                  }},
                 [&](const JsonLine& line, const std::string&) {
                   bool is_empty = !(options.images && has_images(line));
                   for (const std::string& words : texts_of(line, options.chat, marks)) {
                     if (words.empty()) continue;
                     is_empty = false;
                     if (!division.is_for_validation(number)) trainer.feed(words);
                     trainer.end_document();
                   }
                   number += is_empty ? 0 : 1;
                 });
  std::vector<std::string_view> special = special_tokens_of(options.chat, true);
  if (options.images) add_image_tokens(options.images->text, special);
  return tokenizer_json(trainer.train(options.train_bpe, special));
}

void check_images(const TokenizeImages& o) {
  check_usage(o.size >= 1 && o.size <= image_size_limit, "--images ", o.size, ", expected 1 to ",
              image_size_limit, " pixels per side");
  check_usage(o.text.copies >= 1 && o.text.copies <= most_image_tokens,
              "--images needs --image-tokens N, the number of tokens of an image, 1 to ",
              most_image_tokens,
              ": 576 for CLIP ViT-L/14 with 336 pixels, 256 for Gemma 3; for other models (size / "
              "patch)^2, after pooling");
  check_usage(!o.text.token.empty(), "--image-token is empty, expected the name of a token");
  check_usage(marks_in(o.text.begin + "\n" + o.text.end, o.text) == 0,
              "--image-begin or --image-end contains the image token ", o.text.token,
              "; leave it out");
}

void check_options(const TokenizeOptions& o) {
  if (o.train_bpe > 0) {
    check_usage(
        std::find(o.inputs.begin(), o.inputs.end(), "-") == o.inputs.end(),
        "--train-bpe reads the texts twice, so standard input (-) is not possible; give files");
    check_usage(o.end_of_document.empty(),
                "--train-bpe uses <|endoftext|> as end-of-document token; remove ",
                o.end_of_document);
  }
  if (o.images) check_images(*o.images);
  if (o.validation_output.empty()) return;
  check_usage(o.validation_fraction > 0 && o.validation_fraction < 1, "--validation-fraction ",
              o.validation_fraction, ", expected a number between 0 and 1");
  check_usage(fs::weakly_canonical(o.output) != fs::weakly_canonical(o.validation_output),
              "training and validation tokens cannot both go to ", o.output);
}

void check_formats(const TokenizeOptions& o, const std::vector<std::string>& files) {
  const auto lines =
      std::ranges::find_if(files, [&](const auto& path) { return has_json_lines(o, path); });
  check_usage(o.chat == ChatFormat::none || lines != files.end() || o.train_bpe > 0, "--chat ",
              name_of(o.chat),
              ": no input is read as JSON lines; name the files .jsonl, or give --format jsonl");
  const auto plain =
      std::ranges::find_if(files, [&](const auto& path) { return !has_json_lines(o, path); });
  check_usage(o.chat == ChatFormat::none || lines == files.end() || plain == files.end(), "--chat ",
              name_of(o.chat), ": ", lines == files.end() ? "" : *lines,
              " is read as JSON lines, but ", plain == files.end() ? "" : *plain,
              " as text; give files of one kind, or --format jsonl for all");
  check_usage(!o.images || lines != files.end(),
              "--images: no input is read as JSON lines, which name the images; name the files "
              ".jsonl, or give --format jsonl");
  check_usage(o.document_separator.empty() || lines == files.end(),
              "--document-separator splits texts, but ", lines == files.end() ? "" : *lines,
              " is read as JSON lines, each a document; leave it out, or give --format text");
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
  } catch (const fs::filesystem_error& error) {  // the error names the folder that cannot be opened
    throw UsageError(text(folder, ": cannot list its files: ", plain_message(error)));
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
      check_usage(input == "-" || fs::exists(input, error), input,
                  ": no such file or folder; give text files, or folders of text files");
      check_usage(!is_one_of(input, outputs), input, ": is an input and an output; the tokens ",
                  "would overwrite the text");
      files.push_back(input);
      continue;
    }
    auto found = files_below(input, outputs);
    check_usage(!found.empty(), input, ": no files in this folder");
    std::move(found.begin(), found.end(), std::back_inserter(files));
  }
  return files;
}

TokenizeSummary tokenize(const TokenizeOptions& given, const TokenizeProgress& progress) {
  check_options(given);
  TokenizeOptions options = given;
  if (options.train_bpe > 0 && options.tokenizer == "bytes")
    options.tokenizer = (fs::path(options.output).parent_path() / "tokenizer.json").string();
  const auto files =
      input_files(options.inputs, {options.output, options.validation_output,
                                   options.train_bpe > 0 ? options.tokenizer : options.output});
  check_formats(options, files);
  const Division division(options, files);
  std::string learned;
  if (options.train_bpe > 0) learned = learn_bpe(options, files, division, progress);
  const auto tokenizer = learned.empty()
                             ? make_tokenizer(source_of(options))
                             : parse_tokenizer(learned, options.tokenizer, options.end_of_document);
  std::unique_ptr<InstructionEncoder> instructions;
  if (options.chat != ChatFormat::none ||
      std::ranges::any_of(files, [&](const auto& path) { return has_json_lines(options, path); }))
    instructions = std::make_unique<InstructionEncoder>(
        *tokenizer, options.chat, options.special_tokens, image_text_of(options));
  Documents documents(options, *tokenizer, division);
  auto binary = read_documents(
      options, files, progress,
      {[&](std::string_view bytes) { documents.piece(bytes); }, [&] { documents.end(); }},
      [&](const JsonLine& line, const std::string& path) {
        documents.add(instructions->encode(line), line.where(),
                      path == "-" ? "" : fs::path(path).parent_path().string());
      });
  documents.finish_images();
  documents.commit([&] {  // after all checks: a command that fails leaves no file
    if (!learned.empty()) io::replace_file(options.tokenizer, learned);
  });
  return {std::ssize(files), options.tokenizer,      tokenizer->vocabulary(),
          documents.train(), documents.validation(), division.end_held_out(),
          std::move(binary)};
}

}  // namespace trireme::data
