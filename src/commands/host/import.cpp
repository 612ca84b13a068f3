// `trireme import`: weights from a Hugging Face folder as the first checkpoint of a run.
#include <trireme/base/check.hpp>
#include <trireme/base/folder_owner.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/identity.hpp>
#include <trireme/commands/images.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/kept_files.hpp>
#include <trireme/hugging_face/peft.hpp>
#include <trireme/hugging_face/preprocessor.hpp>
#include <trireme/hugging_face/upcycle.hpp>
#include <trireme/hugging_face/weights.hpp>
#include <trireme/io/input_file.hpp>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>
#include <optional>

namespace trireme::commands {
namespace {

struct ImportOptions {
  std::string folder;
  std::string deck;
  std::vector<std::string> overrides;
  bool allow_nonfinite = false;
  std::string adapter;
  std::int64_t experts = 0;  ///< 0: the model as it is
};

/// The deck with its vocabulary resolved.
deck::Deck read_deck(const ImportOptions& options) {
  deck::Deck deck = deck::load_deck(options.deck, options.overrides);
  resolve_vocabulary(deck, open_if_there(deck));
  return deck;
}

/// UsageError for a directory with checkpoints: the import writes a run's first checkpoint.
void expect_no_checkpoints(const deck::Deck& deck) {
  const std::string& directory = deck.config.checkpoint.directory;
  const auto found = checkpoint::folders_in(directory);
  check_usage(found.empty(), deck.cite("checkpoint", "directory"), ": holds ", found.size(),
              found.size() == 1 ? " checkpoint already, " : " checkpoints already, the newest ",
              found.empty() ? "" : found.front(),
              "; give another checkpoint.directory=FOLDER or remove them");
}

/// Opens PEFT's weights after a comparison with the deck; returns the allowed differences.
std::vector<std::string> open_adapter(const std::string& folder, const deck::Deck& deck,
                                      std::optional<hugging_face::SafetensorsFile>& file) {
  check_usage(deck.config.model.adapter.present(), "--adapter ", folder, ": ", deck.file_name,
              " has ", deck.cite("adapter", "kind"), "; set [adapter] as in ", folder, "/",
              hugging_face::adapter_config_name);
  const std::string config = folder + "/" + hugging_face::adapter_config_name;
  std::error_code ignored;
  check_usage(std::filesystem::exists(config, ignored), config,
              ": no such file; give a folder with PEFT's adapter_config.json and "
              "adapter_model.safetensors");
  auto lines = hugging_face::expect_same_adapter(io::read_text_file(config, 1 << 20), config, deck);
  file.emplace(folder + "/" + hugging_face::adapter_weights_name);
  return lines;
}

/// Name of the tokenizer in a model's folder; "" if Trireme cannot read a tokenizer there.
std::string tokenizer_in(const std::string& folder) {
  try {
    return data::make_tokenizer(folder)->name();
  } catch (const UsageError&) {
    return "";
  }
}

/// The key of [data] for the sentinels of a model with corrupted spans, whose names in tokenizers
/// begin with <extra_id_0>; "" if the folder's tokenizer has no such tokens.
std::string sentinels_in(const std::string& folder) {
  try {
    const std::int32_t first = data::make_tokenizer(folder)->special_token("<extra_id_0>");
    return first < 0 ? "" : text("\nsentinel_token = ", first);
  } catch (const UsageError&) {
    return "";
  }
}

/// The command that makes token files for an imported model that sees images. Gemma 3's processor
/// puts tokens around each image.
std::string tokenize_command(const std::string& folder, const hugging_face::ModelFile& file,
                             const hugging_face::ImagePreparation& images) {
  const deck::VisionConfig& v = file.model.vision;
  std::string name = "TOKEN", around;
  try {
    const auto tokenizer = data::make_tokenizer(folder);
    for (const char* known : {"<image>", "<image_soft_token>"})
      if (tokenizer->special_token(known) == file.image_token) name = text('\'', known, '\'');
    const bool has_ends = tokenizer->special_token("<start_of_image>") >= 0 &&
                          tokenizer->special_token("<end_of_image>") >= 0;
    if (v.sees_whole_images() && has_ends)
      around = R"( --image-begin $'\n\n<start_of_image>' --image-end $'<end_of_image>\n\n')";
  } catch (const UsageError&) {  // then the name of the id is not known
  }
  return text("`trireme tokenize --images ", v.image, " --image-fit ", images.fit,
              " --image-tokens ", v.tokens(), " --image-token ", name, around, "`, where ", name,
              " is the token ", file.image_token);
}

/// Warns if the deck's tokenizer differs from `own`, the model folder's tokenizer; "": unknown.
void warn_of_other_tokenizer(const std::string& folder, const std::string& own,
                             const deck::Deck& deck) {
  const std::string used = tokenizer_of(deck)->name();
  if (own.empty() || own == used) return;
  log::warn(text(folder, " has the tokenizer ", own, ", but ", deck.cite("data", "tokenizer"),
                 used == "bytes" ? "" : text(" is ", used),
                 "; unless the model was made for the latter, set data.tokenizer=", folder));
}

void run(const ImportOptions& options) {
  const std::string config_path = options.folder + "/config.json";
  std::error_code ignored;
  const bool of_run = std::filesystem::is_directory(options.folder + "/checkpoints", ignored);
  check_usage(std::filesystem::exists(config_path, ignored), config_path,
              ": no such file; give a local folder that holds a model's config.json and "
              "model.safetensors",
              of_run ? text(". ", options.folder, " is a run's folder: `trireme export ",
                            options.folder, " NEW_FOLDER` makes one of its newest checkpoint")
                     : "");
  auto in_file = hugging_face::parse_config(io::read_text_file(config_path, 1 << 20), config_path);
  const hugging_face::TensorFolder weights(options.folder);
  hugging_face::find_own_output(in_file, weights);
  std::optional<hugging_face::ImagePreparation> images;
  if (in_file.model.vision.present())
    images = hugging_face::image_preparation(options.folder, in_file.model.vision);
  auto config = options.experts > 0 ? hugging_face::upcycled(in_file, options.experts) : in_file;
  if (options.deck.empty()) {
    hugging_face::match(weights, *in_file.format, in_file.model);
    say(hugging_face::model_toml(config),
        config.model.predicts_spans() ? sentinels_in(options.folder) : "");
    if (images) say("# token files: ", tokenize_command(options.folder, in_file, *images));
    if (images && !images->warning.empty()) log::warn(images->warning);
    return;
  }
  const deck::Deck deck = read_deck(options);
  hugging_face::take_modules(in_file, deck);
  config.model.predicts = in_file.model.predicts;
  if (options.experts > 0) {
    hugging_face::expect_upcycled(deck);
    // Any of these values computes the same.
    const deck::ExpertsConfig& experts = deck.config.model.experts;
    config.model.experts.active = experts.active;
    config.model.experts.first_layer = experts.first_layer;
    config.model.experts.every = experts.every;
  }
  hugging_face::expect_same_model(config, deck);
  expect_no_checkpoints(deck);
  std::optional<hugging_face::SafetensorsFile> adapter;
  std::vector<std::string> different = hugging_face::differences(config, deck);
  if (!options.adapter.empty()) {
    const auto lines = open_adapter(options.adapter, deck, adapter);
    different.insert(different.end(), lines.begin(), lines.end());
  }
  const std::string& directory = deck.config.checkpoint.directory;
  const DType dtype = master_type(deck.config.precision.compute);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  check_usage(!error, deck.cite("checkpoint", "directory"), ": cannot create this folder (",
              error.message(), "); choose another run.directory");
  const FolderOwner owner(directory, deck.cite("checkpoint", "directory"), 0);
  expect_no_checkpoints(deck);  // a run may have written a checkpoint in between
  Identity identity = identity_of(deck);
  const std::string own = tokenizer_in(options.folder);
  identity.files.merge(
      hugging_face::files_to_keep(options.folder, own == tokenizer_of(deck)->name()));
  if (images) {
    data::ImageForm form{.token = in_file.image_token};
    if (images->is_stated) {
      form.fit = images->fit;
      form.resampling = io::image_resampling;
    }
    set_images(identity.values, form);
  }
  if (options.experts > 0)  // an export describes the model with experts
    identity.files.erase(hugging_face::name_in_checkpoint(hugging_face::model_config_name));
  const checkpoint::RunState state{
      0, 0, deck::resolved_toml(deck), "", identity.values, identity.files};
  const auto lines = hugging_face::import_weights(
      weights, deck.config.model, dtype, directory, state, options.allow_nonfinite,
      adapter ? &*adapter : nullptr, options.experts > 0 ? &in_file.model : nullptr,
      static_cast<std::uint64_t>(deck.config.run.seed));
  warn_of_other_tokenizer(options.folder, own, deck);
  for (const std::string& line : lines) log::warn(line);
  say("wrote ", directory, "/", checkpoint::folder_name(0), ": the weights of ", weights.path(),
      adapter ? text(" and the adapters of ", adapter->path()) : "", " as ", name_of(dtype));
  for (const std::string& line : different) say(line);
  if (images) {
    say("make token files with ", tokenize_command(options.folder, in_file, *images),
        "; a sample has at most ", deck.cite("vision", "images"));
    if (!images->warning.empty()) log::warn(images->warning);
  }
  std::string same = options.deck;
  for (const auto& override : options.overrides) same += " " + override;
  say("train it with `trireme train ", same, " checkpoint.restart=latest`");
}

}  // namespace

void add_import(CLI::App& app) {
  auto* command =
      app.add_subcommand("import", "Import Hugging Face weights as a checkpoint of step 0");
  const auto options = std::make_shared<ImportOptions>();
  command
      ->add_option("FOLDER", options->folder,
                   "Folder with config.json and model.safetensors, or its shards and their index")
      ->required()
      ->type_name("");
  command
      ->add_option(
          "DECK", options->deck,
          "Deck with the checkpoint directory to write to; without it, the [model] section "
          "for these weights is printed")
      ->type_name("");
  command
      ->add_option("OVERRIDES", options->overrides,
                   "Keys of the deck to override: section.key=value ...")
      ->type_name("")
      ->option_text("[section.key=value ...]");
  command
      ->add_option("--adapter", options->adapter,
                   "Folder with PEFT's adapter_config.json and adapter_model.safetensors, whose "
                   "low-rank adapters the deck's [adapter] describes")
      ->type_name("FOLDER");
  command
      ->add_option("--experts", options->experts,
                   "Make this many experts in each layer of the deck with experts, which all begin "
                   "as the layer's feed-forward part, with new routers (upcycling)")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{65536}))
      ->type_name("NUMBER");
  command->add_flag("--allow-nonfinite", options->allow_nonfinite,
                    "Import numbers that are infinite or NaN, and name their tensors");
  command->footer(
      "The optimizer state is zero, and the learning rate's schedule starts at step 0.\n"
      "\nExample:\n  trireme import exported\n  trireme import exported deck.toml "
      "run.directory=runs/tuned\n  trireme train deck.toml run.directory=runs/tuned "
      "checkpoint.restart=latest");
  command->callback([options] { run(*options); });
}

}  // namespace trireme::commands
