// `trireme tokenize`: options, progress and summary of data::tokenize().
#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/data/tokenize.hpp>
#include <trireme/io/atomic_file.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace trireme::commands {
namespace {

std::string speed(std::int64_t bytes, double seconds) {
  return text(fixed(static_cast<double>(bytes) / 1e6 / std::max(seconds, 1e-9), 1), " MB/s");
}

void say_part(const std::string& path, const data::TokenizeCounts& part) {
  say(path, ": ", with_commas(part.tokens), " tokens in ", with_commas(part.documents),
      part.documents == 1 ? " document (" : " documents (", with_commas(part.text_bytes),
      " bytes of text)");
  if (part.counted < part.tokens)
    say(path, ": ", with_commas(part.counted), " tokens count in the loss");
  if (part.images > 0)
    say(path, ": ", with_commas(part.images), part.images == 1 ? " image" : " images");
}

/// Creates the folder of the file `path`.
void make_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  check_usage(!error, path, ": cannot create the folder ", folder.string(), ": ", error.message());
}

nlohmann::ordered_json part_json(const std::string& path, const data::TokenizeCounts& part) {
  return {{"path", path},          {"documents", part.documents},
          {"tokens", part.tokens}, {"counted", part.counted},
          {"images", part.images}, {"text_bytes", part.text_bytes}};
}

std::string summary_json(const data::TokenizeOptions& options, const data::TokenizeSummary& summary,
                         std::int64_t bytes, double seconds) {
  using nlohmann::ordered_json;
  const bool validation = !options.validation_output.empty();
  const ordered_json all{
      {"tokenizer", summary.tokenizer},
      {"vocabulary", summary.vocabulary},
      {"files", summary.files},
      {"bytes", bytes},
      {"seconds", seconds},
      {"train", part_json(options.output, summary.train)},
      {"validation",
       validation ? part_json(options.validation_output, summary.validation) : ordered_json()},
      {"end_held_out", summary.end_held_out}};
  return all.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

void tokenize_and_report(const data::TokenizeOptions& options, const std::string& json) {
  if (json != "-") io::expect_writable(json);
  make_folder_of(options.output);
  make_folder_of(options.validation_output);
  if (options.train_bpe > 0) make_folder_of(options.tokenizer);
  io::remove_temporaries_on_signals();
  const auto begin = Clock::now();
  const double interval = log::on_terminal() ? 0.5 : 30.0;  // seconds between progress lines
  double next = interval;
  std::int64_t total_bytes = 0;
  const auto summary = data::tokenize(options, [&](std::int64_t bytes) {
    total_bytes = bytes;
    const double seconds = seconds_since(begin);
    if (seconds < next || json == "-") return;
    next = seconds + interval;
    log::progress(text("read ", human_bytes(bytes), ", ", speed(bytes, seconds)));
  });
  const double seconds = seconds_since(begin);
  if (options.train_bpe > 0) {
    if (json != "-") say(summary.tokenizer, ": ", with_commas(summary.vocabulary), " ids");
    if (summary.vocabulary < options.train_bpe)
      log::warn(text("the texts yield only ", summary.vocabulary, " ids, fewer than --train-bpe ",
                     options.train_bpe));
  }
  if (!json.empty()) io::write_json(json, summary_json(options, summary, total_bytes, seconds));
  if (json == "-") return;
  say_part(options.output, summary.train);
  if (!options.validation_output.empty()) say_part(options.validation_output, summary.validation);
  if (!summary.end_held_out.empty())
    say(options.validation_output, ": ", summary.end_held_out,
        ", because the documents are too few to choose from");
  say("read ", with_commas(total_bytes), " bytes from ", with_commas(summary.files),
      summary.files == 1 ? " file in " : " files in ", fixed(seconds, 2), " s, ",
      speed(total_bytes, seconds));
  if (const auto count = std::ssize(summary.binary); count > 0)
    log::warn(text(with_commas(count), " of the files ", count == 1 ? "contains" : "contain",
                   " zero bytes and ", count == 1 ? "is" : "are", " probably not text, ",
                   count == 1 ? "" : "the first ", summary.binary.front(),
                   "; give only the text files"));
}

/// Sets the values that the options give.
void set_image_form(data::TokenizeImages& images, const ImageOptions& given) {
  images.fit = given.fit.value_or(images.fit);
  images.text.token = given.token.value_or(images.text.token);
  images.text.begin = given.begin.value_or("");
  images.text.end = given.end.value_or("");
}

/// Options of images. Both must outlive the command.
void add_image_options(CLI::App& command, data::TokenizeOptions& options, ImageOptions& texts) {
  const auto images = [&options]() -> data::TokenizeImages& {
    if (!options.images) options.images.emplace();
    return *options.images;
  };
  auto* size = command
                   .add_option_function<std::int64_t>(
                       "--images", [images](std::int64_t pixels) { images().size = pixels; },
                       "Read the images that JSON lines name, PNG, JPEG or .npy, and store them "
                       "with this many pixels per side")
                   ->check(CLI::Range(std::int64_t{1}, data::image_size_limit).description(""))
                   ->type_name("SIZE");
  command
      .add_option_function<std::int64_t>(
          "--image-tokens", [images](std::int64_t copies) { images().text.copies = copies; },
          "Number of tokens of an image: 576 for CLIP ViT-L/14 with 336 pixels, 256 for Gemma 3")
      ->type_name("N")
      ->needs(size);
  add_image_text_options(command, texts, size, false);
}

void add_tokenize(CLI::App& app) {
  auto* command =
      app.add_subcommand("tokenize", "Convert text files or JSON lines to a token file");
  const auto options = std::make_shared<data::TokenizeOptions>();
  options->validation_fraction = 0.02;
  command->add_option("-o,--output", options->output, "Token file to write (HDF5)")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("INPUT", options->inputs,
                   "Text files, plain or gzip; folders, including all files below; - for standard "
                   "input")
      ->required()
      ->type_name("");
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "bytes, a tokenizer.json, or a folder with a tokenizer.json or with vocab.json "
                   "and merges.txt")
      ->capture_default_str();
  command
      ->add_option("--end-of-document", options->end_of_document,
                   "Special token at the end of documents; default: the tokenizer's <|endoftext|> "
                   "or similar")
      ->type_name("TOKEN");
  command->add_flag(
      "--special-tokens", options->special_tokens,
      "Encode names of special tokens in the texts as these tokens; default: as text");
  command
      ->add_option(
          "--train-bpe", options->train_bpe,
          "Train a byte-level BPE with this many ids on the texts and write it to "
          "--tokenizer; default: tokenizer.json in the output's folder. With --chat it has "
          "the format's special tokens")
      ->check(CLI::Range(std::int64_t{257}, std::int64_t{1} << 24))
      ->type_name("IDS");
  command
      ->add_option("--document-separator", options->document_separator,
                   "Regular expression (PCRE2, on bytes) that separates the documents of a file; "
                   "the matched "
                   "text is dropped. Default: each file is one document")
      ->type_name("PATTERN");
  command
      ->add_option_function<std::string>(
          "--format",
          [options](const std::string& name) {
            options->format = name == "text" ? data::TextFormat::text : data::TextFormat::jsonl;
          },
          "text or jsonl; default: jsonl for files named .jsonl or .jsonl.gz, whose lines are "
          "documents: {\"text\"}, {\"prompt\", \"completion\"}, {\"source\", \"target\"} or "
          "{\"messages\"}")
      ->check(CLI::IsMember({"text", "jsonl"}).description(""))
      ->type_name("FORMAT");
  command
      ->add_option_function<std::string>(
          "--chat", [options](const std::string& name) { options->chat = data::chat_format(name); },
          text("Chat format of messages in JSON lines: ", join(data::chat_format_names(), ", ")))
      ->check(CLI::IsMember(data::chat_format_names()).description(""))
      ->type_name("FORMAT");
  const auto texts = std::make_shared<ImageOptions>();
  add_image_options(*command, *options, *texts);
  auto* validation = command
                         ->add_option("--validation", options->validation_output,
                                      "Second token file, for validation")
                         ->type_name("FILE");
  command
      ->add_option("--validation-fraction", options->validation_fraction,
                   "Fraction of the documents for the validation file; fraction of the text if "
                   "there are too few documents")
      ->capture_default_str()
      ->needs(validation);
  command->add_option("--seed", options->seed, "Seed for choosing the validation documents")
      ->capture_default_str()
      ->needs(validation);
  command->footer(
      "Example:\n  # the entries of a dictionary, which begin in column 0 after an empty line\n"
      "  trireme tokenize -o train.h5 --validation validation.h5 \\\n"
      "      --document-separator '\\n\\n(?=\\S)' /usr/share/dictd/gcide.dict.dz\n"
      "  # conversations, of which the assistant's answers count in the loss\n"
      "  trireme tokenize -o chats.h5 --tokenizer tokenizer.json --chat chatml chats.jsonl\n"
      "  # {\"image\": \"cat.png\", \"prompt\": \"What is this?\", \"completion\": \" A cat.\"}\n"
      "  trireme tokenize -o images.h5 --tokenizer tokenizer.json --images 336 --image-tokens 576 "
      "\\\n"
      "      images.jsonl");
  const auto json = std::make_shared<std::string>();
  add_json_option(*command, *json, "the summary");
  command->callback([options, texts, json] {
    if (options->images) set_image_form(*options->images, *texts);
    tokenize_and_report(*options, *json);
  });
}

}  // namespace trireme::commands
