// The prompts of `trireme generate` and of a run's evaluations, and the lines of files of texts.
#include <trireme/commands/prompts.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/data/chat_lines.hpp>
#include <trireme/data/image_documents.hpp>
#include <trireme/data/image_lines.hpp>
#include <trireme/data/instructions.hpp>
#include <trireme/data/json_lines.hpp>
#include <trireme/data/sentinel_names.hpp>
#include <trireme/io/image_resize.hpp>
#include <trireme/io/input_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

namespace trireme::commands {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  io::TextReader reader(path);
  std::string content;
  std::array<char, 1 << 16> block{};
  while (const std::size_t n = reader.read(block)) content.append(block.data(), n);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    lines.push_back(content.substr(begin, end - begin));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    begin = end + 1;
  }
  return lines;
}

Prompt question(std::string words, std::string where) {
  return {words, {{{"user", std::move(words)}}}, std::move(where)};
}

/// Marks the places of a prompt's images before its text, unless the text marks them itself. The
/// prompt is also the only message of its conversation.
void mark_images(Prompt& prompt, const data::ImageText& form) {
  const std::int64_t marks = data::marks_in(prompt.words, form);
  const auto images = std::ssize(prompt.images);
  check_usage(images == 0 || marks == 0 || marks == images, prompt.where, " has ", images,
              images == 1 ? " image" : " images", ", but ", form.token, " ", marks,
              marks == 1 ? " time" : " times", "; write it once for each image, or for none");
  if (marks > 0) return;
  std::string before;
  for (std::int64_t i = 0; i < images; ++i) before += form.token;
  prompt.words = before + prompt.words;
  prompt.chat.messages.front().content = prompt.words;
}

/// UsageError for unknown members. Members for answers are known, but do not change the prompt.
void expect_prompt_members(const data::JsonLine& line) {
  data::expect_known_members(
      line, {"prompt", "image", "images", "messages", "tools", "completion", "answer", "answers",
             "reference", "references", "label", "gold"});
}

/// Images are relative to `folder`, and marked as `form` says. `sees`: as for prompts_of().
Prompt prompt_of(const data::JsonLine& line, bool chat, const std::filesystem::path& folder,
                 const data::ImageText& form, bool sees) {
  const auto files = [&](const std::vector<std::string>& images) {
    std::vector<std::string> paths;
    for (const std::string& image : images) paths.push_back((folder / image).string());
    return paths;
  };
  if (!line.has("messages")) {
    Prompt prompt = question(line.string("prompt"), line.where());
    if (line.has("tools")) line.refuse("has \"tools\" without \"messages\"");
    expect_prompt_members(line);
    prompt.images = files(data::images_of(line));
    mark_images(prompt, form);
    return prompt;
  }
  if (data::has_images(line) && !sees)
    line.refuse("has images, but the deck's model has no encoder of images ([vision])");
  if (line.has("prompt")) line.refuse("has both \"prompt\" and \"messages\"");
  if (!chat)
    throw UsageError(text(line.where(), ": has \"messages\"; choose their format with --chat: ",
                          join(data::chat_format_names(), ", ")));
  expect_prompt_members(line);
  data::Chat messages = data::chat_of(line, sees ? std::string_view(form.token) : "");
  std::vector<std::string> images;
  if (sees) images = files(data::mark_chat(line, messages, form));
  std::string words = messages.messages.back().content;
  return {std::move(words), std::move(messages), line.where(), std::move(images)};
}

/// The texts of the options, or else of the training, or else the defaults.
data::ImageText image_text_of(const ImageOptions& given, const data::ImageForm& trained,
                              const data::Tokenizer& tokenizer) {
  data::ImageText images;
  for (const auto& [name, id] : tokenizer.special_tokens())
    if (id == trained.token) images.token = name;
  images.token = given.token.value_or(images.token);
  images.begin = given.begin.value_or(trained.begin);
  images.end = given.end.value_or(trained.end);
  return images;
}

io::ImageFit image_fit_of(const ImageOptions& given, const data::ImageForm& trained) {
  if (given.fit || trained.fit.empty()) return given.fit.value_or(io::ImageFit::crop);
  check_usage(std::ranges::find(io::image_fit_names, trained.fit) != std::end(io::image_fit_names),
              "images of the training became squares with --image-fit ", trained.fit,
              ", which this version does not know; use a newer version of trireme");
  return io::image_fit(trained.fit);
}

std::string name_of(const data::Tokenizer& tokenizer, std::int32_t id) {
  for (const auto& [name, known] : tokenizer.special_tokens())
    if (known == id) return name;
  return id == tokenizer.end_of_document() ? "the end-of-document token" : text("token ", id);
}

/// The tokenizer of the deck; with corrupted spans, with names of sentinels.
std::unique_ptr<data::Tokenizer> tokenizer_of_texts(const deck::Deck& deck) {
  auto tokenizer = tokenizer_of(deck);
  if (!deck.config.model.predicts_spans()) return tokenizer;
  const deck::SpanIds ids = deck::span_ids(deck.config);
  return data::with_sentinels(
      std::move(tokenizer),
      {static_cast<std::int32_t>(ids.sentinel), deck.config.model.spans().spans,
       1 + std::max({ids.start, ids.end, ids.sentinel})});
}

}  // namespace

std::vector<Prompt> prompts_of(const GenerateOptions& options, const data::ImageText& form,
                               bool sees) {
  const std::string& path = options.prompts;
  if (path.empty()) {
    Prompt prompt = question(options.prompt, "the prompt");
    prompt.images = options.images;
    mark_images(prompt, form);
    return {std::move(prompt)};
  }
  const bool chat = data::chat_format(options.chat) != data::ChatFormat::none;
  std::vector<Prompt> prompts;
  if (path.ends_with(".jsonl") || path.ends_with(".jsonl.gz")) {
    data::read_json_lines(
        path, R"({"prompt": "Once upon a time"})", [&](const data::JsonLine& line) {
          prompts.push_back(
              prompt_of(line, chat, std::filesystem::path(path).parent_path(), form, sees));
        });
  } else {
    for (std::string& line : lines_of(path))
      prompts.push_back(question(std::move(line), text(path, ":", prompts.size() + 1)));
  }
  check_usage(!prompts.empty(), path, ": has no prompts; write one per line");
  return prompts;
}

std::int32_t prefix_token(const data::Tokenizer& tokenizer, const std::string& name) {
  if (name.empty() || name == "end-of-document") return tokenizer.end_of_document();
  const std::int32_t id = tokenizer.special_token(name);
  check_usage(id >= 0, "--prefix ", name, ": the deck's tokenizer ", tokenizer.name(),
              " has no such special token; give one of its special tokens, or end-of-document");
  return id;
}

std::vector<std::int32_t> ids_before_prompt(const data::Tokenizer& tokenizer,
                                            const std::string& prefix) {
  if (prefix.empty()) return tokenizer.before_text();
  if (prefix == "none") return {};
  return {prefix_token(tokenizer, prefix)};
}

Texts::Texts(const deck::Deck& deck, const GenerateOptions& options, const data::ImageForm& trained)
    : options_(options),
      tokenizer_(tokenizer_of_texts(deck)),
      chat_(data::chat_format(options.chat)),
      sequence_(deck.config.model.sequence),
      source_sequence_(deck.config.model.encoder.present() ? deck.config.model.encoder.sequence
                                                           : 0),
      vision_(deck.config.model.vision),
      trained_(trained),
      image_text_(image_text_of(options.image_form, trained, *tokenizer_)),
      image_fit_(image_fit_of(options.image_form, trained)),
      image_id_(vision_.present() ? tokenizer_->special_token(image_text_.token) : -1),
      prompts_(prompts_of(options, image_text_, vision_.present())) {
  expect_images();
  if (are_targets()) {
    span_ids_ = deck::span_ids(deck.config);
    if (deck.config.model.reads_pairs()) span_ids_.end = tokenizer_->end_of_document();
  }
  if (is_chat()) data::expect_special_tokens(*tokenizer_, chat_, false);
  const std::int64_t vocabulary = deck.config.model.vocabulary;
  for (std::size_t p = 0; p < prompts_.size(); ++p) {
    const std::vector<std::int32_t> ids = ids_of(p);
    for (const std::int32_t id : ids)
      check_usage(id < vocabulary, prompts_[p].where, " has token ", id, ", the model only ",
                  vocabulary);
    if (are_targets())
      check_usage(std::ssize(ids) <= source_sequence_, prompts_[p].where, " has ", ids.size(),
                  " tokens with the end token, but the encoder reads at most ",
                  deck.cite("encoder", "sequence"),
                  "; shorten the prompt, or set a larger sequence");
    tokens_.push_back(std::ssize(ids));
  }
}

std::string Texts::prefix_text() const {
  const std::string& prefix = options_.prefix;
  std::vector<std::string> names;
  for (const std::int32_t id : ids_before_prompt(*tokenizer_, prefix))
    names.push_back(name_of(*tokenizer_, id));
  if (are_targets())
    return text(
        "the encoder reads ", join(names, " "), names.empty() ? "" : " and ", "each prompt up to ",
        name_of(*tokenizer_, static_cast<std::int32_t>(span_ids_.end)), "; each text begins after ",
        name_of(*tokenizer_, static_cast<std::int32_t>(span_ids_.start)));
  const char* cause = prefix.empty() ? " (the tokenizer's post_processor)" : " (--prefix)";
  if (!names.empty()) return text("each prompt follows ", join(names, " "), cause);
  return text("no token is put before a prompt",
              prefix.empty() ? "; choose one with --prefix" : " (--prefix)");
}

void Texts::warn_of_long_prompts() const {
  if (are_targets()) return;  // which have no long prompts
  const auto is_long = [&](std::int64_t tokens) { return tokens > sequence_; };
  const auto first = std::ranges::find_if(tokens_, is_long);
  if (first == tokens_.end()) return;
  const Prompt& prompt = prompts_[static_cast<std::size_t>(first - tokens_.begin())];
  log::warn(text(prompt.where, " has ", *first, " tokens, but [model] sequence = ", sequence_,
                 ": the first ", *first - sequence_, " are left out",
                 prompts_.size() == 1 ? ""
                                      : text(" (", std::ranges::count_if(tokens_, is_long), " of ",
                                             prompts_.size(), " prompts are too long)"),
                 "; shorten the prompt"));
}

std::int32_t Texts::end() const {
  if (are_targets()) return static_cast<std::int32_t>(span_ids_.end);
  return is_chat() ? tokenizer_->special_token(data::end_of_answer(chat_))
                   : tokenizer_->end_of_document();
}

std::string Texts::heading(std::int64_t n) const {
  const std::string sample = text("sample ", n % options_.samples + 1, " of ", options_.samples);
  if (prompts_.size() == 1) return options_.samples == 1 ? "" : "---- " + sample + "\n";
  return text("---- prompt ", n / options_.samples + 1, " of ", prompts_.size(),
              options_.samples == 1 ? "" : ", " + sample, "\n");
}

std::string Texts::json(std::int64_t n, const std::string& continuation, std::int64_t tokens,
                        const char* end) const {
  const std::int64_t prompt_tokens = tokens_[prompt_of_text(n)];
  const std::int64_t most = are_targets() ? source_sequence_ : sequence_;
  nlohmann::ordered_json line{
      {"step", step_},
      {"prompt", prompt(n)},
      {"prompt_tokens", prompt_tokens},
      {"prompt_tokens_left_out", std::max<std::int64_t>(0, prompt_tokens - most)},
      {"sample", n % options_.samples + 1},
      {"text", continuation},
      {"tokens", tokens},
      {"end", end}};
  if (const auto& images = prompts_[prompt_of_text(n)].images; !images.empty()) {
    line["images"] = images;
    line["image_fit"] = io::name_of(image_fit_);
  }
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

/// UsageError unless the model, the format and the tokenizer can have the prompts' images.
void Texts::expect_images() const {
  for (const Prompt& prompt : prompts_) {
    if (prompt.images.empty()) continue;
    check_usage(vision_.present(), prompt.where,
                " has an image, but the deck's model has no "
                "encoder of images ([vision]); remove the image");
    check_usage(image_id_ >= 0, prompt.where, " has an image, but the deck's tokenizer ",
                tokenizer_->name(), " has no special token ", image_text_.token,
                "; give one with --image-token");
    check_usage(std::ssize(prompt.images) <= vision_.images, prompt.where, " has ",
                prompt.images.size(), " images, but [vision] images = ", vision_.images,
                "; give fewer, or set images = ", prompt.images.size());
    expect_form_of_training(prompt);
  }
}

/// UsageError if the images of a prompt would become other pixels or tokens than in the training.
void Texts::expect_form_of_training(const Prompt& prompt) const {
  const std::string fit(io::name_of(image_fit_));
  check_usage(trained_.fit.empty() || trained_.fit == fit, "--image-fit ", fit, ": ", prompt.where,
              " has an image, but images of the training became squares with --image-fit ",
              trained_.fit, "; leave --image-fit out");
  check_usage(trained_.resampling.empty() || trained_.resampling == io::image_resampling,
              prompt.where, " has an image, but images of the training were resized by the method ",
              trained_.resampling, ", and this version resizes by ", io::image_resampling,
              "; use the version of trireme that made the token files");
  check_usage(trained_.token < 0 || trained_.token == image_id_, prompt.where,
              " has an image, for which ", image_text_.token, " stands, token ", image_id_,
              ", but the model was trained with token ", trained_.token, "; give --image-token ",
              name_of(*tokenizer_, static_cast<std::int32_t>(trained_.token)));
}

std::string Texts::image_text() const {
  if (std::ranges::all_of(prompts_, [](const Prompt& p) { return p.images.empty(); })) return "";
  return text("images become squares with --image-fit ", io::name_of(image_fit_),
              trained_.fit.empty() ? "; the checkpoint does not state the fit of its training"
                                   : ", as in the training");
}

/// Appends the ids of a text with images: names of special tokens are these tokens, and each mark
/// is as many copies as an image has tokens.
void Texts::append_with_images(const std::string& words, std::vector<std::int32_t>& ids) const {
  const std::string around = image_text_.begin + image_text_.token + image_text_.end;
  std::vector<std::int32_t> marked;
  tokenizer_->encode(data::with_marks_replaced(words, image_text_, around), marked, {true});
  for (const std::int32_t id : marked)
    ids.insert(ids.end(), id == image_id_ ? static_cast<std::size_t>(vision_.tokens()) : 1, id);
}

/// The text of a conversation, in which names of special tokens are these tokens.
std::string Texts::chat_text(const Prompt& prompt) const {
  data::Chat plain = prompt.chat;
  if (!prompt.images.empty())
    for (data::ChatMessage& message : plain.messages)
      message.content = data::with_marks_replaced(message.content, image_text_, "\n");
  data::expect_plain(plain, *tokenizer_, prompt.where,
                     "remove it: a message could end its turn with it");
  try {
    return data::prompt_of(chat_, prompt.chat);
  } catch (const UsageError& error) {
    throw UsageError(text(prompt.where, " ", error.what()));
  }
}

data::TextImages Texts::images(std::int64_t n, const std::vector<std::int32_t>& ids) const {
  const Prompt& prompt = prompts_[prompt_of_text(n)];
  if (prompt.images.empty()) return {};
  data::TextImages images{
      std::vector<std::int32_t>(ids.size(), -1),
      std::vector<std::int32_t>(static_cast<std::size_t>(vision_.pixel_words()))};
  const std::int64_t found = data::place_image_rows(vision_, image_id_, ids, images.rows);
  check_usage(found == std::ssize(prompt.images) * vision_.tokens(), prompt.where,
              " has other tokens of images than its images; write ", image_text_.token,
              " only at their places");
  if (vision_.sees_whole_images()) {
    std::vector<std::int32_t> ends(ids.size());
    data::place_key_ends(images.rows, ends);
    for (std::size_t i = 0; i < ends.size(); ++i)
      check_usage(ends[i] - static_cast<std::int64_t>(i) <= vision_.tokens(), prompt.where,
                  " has two images without a token between them, which the model would see as one "
                  "image; write text between them, or give --image-begin and --image-end");
  }
  auto* to = reinterpret_cast<std::uint8_t*>(images.pixels.data());
  for (const std::string& path : prompt.images) {
    try {
      const io::Image square = io::fitted(io::read_image(path), vision_.image, image_fit_);
      to = std::ranges::copy(square.pixels, to).out;
    } catch (const UsageError& error) {
      throw UsageError(text(prompt.where, ": ", error.what()));
    }
  }
  return images;
}

/// As T5's tokenizer, names of special tokens are these tokens.
std::vector<std::int32_t> Texts::source_of(std::size_t p) const {
  const Prompt& prompt = prompts_[p];
  std::vector<std::int32_t> ids = ids_before_prompt(*tokenizer_, options_.prefix);
  const std::size_t before = ids.size();
  tokenizer_->encode(prompt.words, ids, {true});
  check_usage(
      ids.size() > before, prompt.where,
      " has no tokens, but a model with an encoder needs a text to read; ",
      options_.prompts.empty() ? "give one with --prompt or --prompts" : "remove this prompt");
  ids.push_back(end());
  return ids;
}

std::vector<std::int32_t> Texts::ids_of(std::size_t p) const {
  if (are_targets()) return source_of(p);
  const Prompt& prompt = prompts_[p];
  if (!is_chat()) {
    std::vector<std::int32_t> ids = ids_before_prompt(*tokenizer_, options_.prefix);
    if (prompt.images.empty())
      tokenizer_->encode(prompt.words, ids);
    else
      append_with_images(prompt.words, ids);
    // A model needs at least one token.
    if (ids.empty()) ids.push_back(tokenizer_->end_of_document());
    return ids;
  }
  std::vector<std::int32_t> ids;
  if (prompt.images.empty())
    tokenizer_->encode(chat_text(prompt), ids, {true});
  else
    append_with_images(chat_text(prompt), ids);
  if (data::uses_tools(prompt.chat)) data::expect_special_tokens(*tokenizer_, chat_, true);
  return ids;
}

GenerateOptions options_of_run(const deck::RunConfig& run) {
  GenerateOptions options;
  options.prompts = run.prompts;
  options.output = run.directory + "/texts.jsonl";
  options.tokens = run.prompt_tokens;
  options.temperature = 0;
  options.chat = run.chat;
  return options;
}

std::unique_ptr<Texts> texts_of_run(const deck::Deck& deck, const GenerateOptions& options,
                                    const data::ImageForm& trained) {
  check_usage(options.chat.empty() || data::chat_format(options.chat) != data::ChatFormat::none,
              deck.cite("run", "chat"), " is not a chat format; choose one of ",
              join(data::chat_format_names(), ", "), ", or leave chat out");
  try {
    auto texts = std::make_unique<Texts>(deck, options, trained);
    for (std::int64_t n = 0; n < texts->count(); ++n) texts->images(n, texts->ids(n));
    return texts;
  } catch (const UsageError& error) {  // the error names the key instead of the option
    std::string mistake = error.what();
    for (auto at = mistake.find("--chat"); at != std::string::npos; at = mistake.find("--chat"))
      mistake.replace(at, 6, "[run] chat");
    throw UsageError(text("[run] prompts (", deck.where("run", "prompts"), "): ", mistake));
  }
}

std::string describe_prompts(const Texts& texts, const GenerateOptions& options) {
  return text(with_commas(texts.count()), texts.count() == 1 ? " prompt" : " prompts", " of ",
              options.prompts, ", continued at each evaluation by at most ",
              with_commas(options.tokens), options.tokens == 1 ? " token" : " tokens");
}

}  // namespace trireme::commands
