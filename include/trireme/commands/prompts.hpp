#pragma once

#include <trireme/commands/options.hpp>
#include <trireme/data/chat.hpp>
#include <trireme/data/image_documents.hpp>
#include <trireme/data/image_lines.hpp>
#include <trireme/data/token_source.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/io/image_resize.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::commands {

/// A text to continue, or with an encoder to read; with --chat, the conversation to continue.
struct Prompt {
  std::string words;
  data::Chat chat;
  std::string where;                     ///< "the prompt", or file and line
  std::vector<std::string> images = {};  ///< files
};

/// The prompts of the options, with a mark for each image, as `images` marks them. `sees`: whether
/// the model sees images; otherwise conversations with images are errors. A UsageError for
/// a mistake in a file of prompts names the file, and the line if one line is wrong.
std::vector<Prompt> prompts_of(const GenerateOptions& options, const data::ImageText& images,
                               bool sees);

/// The options with which evaluations of a run continue its prompts: [run] prompts, prompt_tokens
/// and chat, temperature 0, and the output texts.jsonl.
GenerateOptions options_of_run(const deck::RunConfig& run);

/// The id of the special token `name`, or for "" and "end-of-document" the id of the
/// end-of-document token. UsageError for an unknown name.
std::int32_t prefix_token(const data::Tokenizer& tokenizer, const std::string& name);

/// The ids before a prompt. `prefix` = "": the tokenizer's usual ids before a text; "none": no ids;
/// otherwise prefix_token().
std::vector<std::int32_t> ids_before_prompt(const data::Tokenizer& tokenizer,
                                            const std::string& prefix);

/// All texts of a command or of a run's evaluations: `samples` texts for each prompt in turn.
class Texts {
 public:
  /// `options` must outlive this object. `trained`: how the images of the model's training became
  /// pixels and tokens, as images_of() says. UsageError for mistakes in the prompts, and for
  /// prompts with images if the options contradict the training.
  Texts(const deck::Deck& deck, const GenerateOptions& options, const data::ImageForm& trained);

  /// A sentence about the ids before prompts, and with an encoder about the ids around texts.
  std::string prefix_text() const;
  /// A sentence about the images of prompts; "" without images.
  std::string image_text() const;
  /// Warns of prompts that are cut at the beginning.
  void warn_of_long_prompts() const;

  /// Sets the step of the weights that generate the texts.
  void set_step(std::int64_t step) { step_ = step; }

  bool is_chat() const { return chat_ != data::ChatFormat::none; }
  /// Whether an encoder reads the prompts, so that texts are targets of their own.
  bool are_targets() const { return source_sequence_ > 0; }
  /// The token that ends a text. A continuation also ends with the end-of-document token.
  std::int32_t end() const;
  bool ends_with(std::int32_t token) const {
    return !are_targets() && token == tokenizer_->end_of_document();
  }
  /// The ids that the text of text n's first token depends on.
  std::vector<std::int32_t> ids_before_text(std::int64_t n) const {
    return are_targets() ? std::vector<std::int32_t>() : ids(n);
  }

  std::int64_t count() const { return std::ssize(prompts_) * options_.samples; }
  const data::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& prompt(std::int64_t n) const { return prompts_[prompt_of_text(n)].words; }
  /// The ids of text n's prompt: the beginning of a document, a conversation up to the answer, or a
  /// whole source.
  std::vector<std::int32_t> ids(std::int64_t n) const { return ids_of(prompt_of_text(n)); }

  /// The images of text n, whose files are read. `ids`: ids(n). UsageError that names the prompt.
  data::TextImages images(std::int64_t n, const std::vector<std::int32_t>& ids) const;

  /// Line before text n; "" if there is only one text.
  std::string heading(std::int64_t n) const;
  /// Text n as a line of JSON, for a file of texts.
  std::string json(std::int64_t n, const std::string& continuation, std::int64_t tokens,
                   const char* end) const;

 private:
  std::size_t prompt_of_text(std::int64_t n) const {
    return static_cast<std::size_t>(n / options_.samples);
  }
  std::vector<std::int32_t> ids_of(std::size_t p) const;
  std::vector<std::int32_t> source_of(std::size_t p) const;
  std::string chat_text(const Prompt& prompt) const;
  void append_with_images(const std::string& words, std::vector<std::int32_t>& ids) const;
  void expect_images() const;
  void expect_form_of_training(const Prompt& prompt) const;

  const GenerateOptions& options_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  data::ChatFormat chat_;
  std::int64_t sequence_;
  std::int64_t source_sequence_;  ///< tokens that the encoder reads; 0 without an encoder
  deck::VisionConfig vision_;     ///< absent: the model sees no images
  data::ImageForm trained_;       ///< how images of the training became pixels and tokens
  data::ImageText image_text_;    ///< of prompts with images
  io::ImageFit image_fit_;
  std::int32_t image_id_ = -1;   ///< id that stands for images
  deck::SpanIds span_ids_ = {};  ///< with an encoder; pairs end with the end of a document
  std::int64_t step_ = 0;
  std::vector<Prompt> prompts_;
  std::vector<std::int64_t> tokens_;  ///< number of tokens of each prompt
};

/// The texts that evaluations of the deck's run continue. `options`: options_of_run(); they must
/// outlive the result. `trained` is as in Texts. A UsageError names the key and its place. The
/// vocabulary must be resolved.
std::unique_ptr<Texts> texts_of_run(const deck::Deck& deck, const GenerateOptions& options,
                                    const data::ImageForm& trained);
/// "3 prompts of prompts.txt, continued at each evaluation by at most 64 tokens".
std::string describe_prompts(const Texts& texts, const GenerateOptions& options);

}  // namespace trireme::commands
