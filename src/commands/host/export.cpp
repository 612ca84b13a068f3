// `trireme export`: writes a checkpoint's weights in the layout of Hugging Face transformers, or
// adapters for PEFT.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/identity.hpp>
#include <trireme/commands/images.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/folder_writer.hpp>
#include <trireme/hugging_face/kept_files.hpp>
#include <trireme/hugging_face/peft.hpp>
#include <trireme/hugging_face/preprocessor.hpp>
#include <trireme/hugging_face/weights.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/atomic_folder.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string checkpoint;
  std::string folder;
  std::string dtype;
  std::string shard_size;
  bool force = false;
  bool merge = false;
  std::string base;
};

/// Files of a model besides hugging_face::weight_files() and the configuration.
constexpr std::array<const char*, 4> other_files{
    hugging_face::adapter_weights_name, data::tokenizer_file_names[0],
    data::tokenizer_file_names[1], data::tokenizer_file_names[2]};

bool is_tokenizer_file(const std::string& name) {
  return std::ranges::find(data::tokenizer_file_names, name) != data::tokenizer_file_names.end();
}

/// Existing files of a model in the output folder, without the configuration.
std::vector<std::string> model_files(const std::string& folder) {
  std::vector<std::string> files = hugging_face::weight_files(folder);
  for (const char* name : other_files)
    if (fs::exists(folder + "/" + name)) files.push_back(folder + "/" + name);
  return files;
}

void expect_no_files(const ExportOptions& options, const checkpoint::Files& beside) {
  std::vector<std::string> there = model_files(options.folder);
  for (const auto& [name, content] : beside)
    if (const std::string path = options.folder + "/" + name;
        fs::exists(path) && std::ranges::find(there, path) == there.end())
      there.push_back(path);
  check_usage(options.force || there.empty(), there.empty() ? "" : there.front(),
              " exists; choose another folder, or give --force to replace ",
              there.size() == 1 ? "it" : text("all ", there.size(), " files of a model"));
}

std::int64_t shard_bytes(const std::string& size) {
  if (size.empty()) return 0;
  const auto bytes = hugging_face::parse_size(size);
  check_usage(bytes.has_value(), "--shard-size ", size,
              ": expected a whole number of B, KB, MB, GB or TB, or of KiB to TiB, such as 5GB");
  return *bytes;
}

/// The checkpoint's deck, without [adapter] if the checkpoint has no adapters yet.
deck::Deck stored_deck(const checkpoint::Reader& reader) {
  deck::Deck deck =
      deck::parse_deck(reader.state().deck_toml, text(reader.folder(), "/", checkpoint::deck_name));
  const bool has = std::ranges::any_of(reader.arrays(), [](const auto& array) {
    return array.name.ends_with(architecture::adapter_a);
  });
  if (!has) deck.config.model.adapter = {};
  return deck;
}

/// The tokenizer whose files the checkpoint keeps, or else the tokenizer of the deck.
std::unique_ptr<data::Tokenizer> stored_tokenizer(const checkpoint::Reader& reader,
                                                  const deck::Deck& deck,
                                                  const checkpoint::Files& kept) {
  const bool has = std::ranges::any_of(data::tokenizer_file_names,
                                       [&](const char* name) { return kept.contains(name); });
  if (!has) return tokenizer_of(deck);
  return data::make_tokenizer({reader.folder(), deck.config.data.end_of_document});
}

/// Whether only adapters are written, for PEFT. UsageError for options that do not fit.
bool writes_adapters(const ExportOptions& options, const deck::Deck& deck) {
  const deck::AdapterConfig& adapter = deck.config.model.adapter;
  check_usage(!options.merge || adapter.present(),
              "--merge: the checkpoint has no adapters; leave ", "it out");
  if (!adapter.present() || options.merge) return false;
  check_usage(adapter.also_trained.empty(), deck.cite("adapter", "also_trained"),
              " names weights that files of adapters do not hold; give --merge");
  check_usage(options.shard_size.empty(), "--shard-size does not apply to adapters; leave it out, ",
              "or give --merge");
  return true;
}

/// The files beside the weights, and messages about their contents.
struct Beside {
  checkpoint::Files files;
  std::vector<std::string> changes;
};

/// Adds config.json, and generation_config.json if the model was imported with this file.
void add_model_config(Beside& out, const checkpoint::Reader& reader, const checkpoint::Files& kept,
                      const deck::Config& config, DType dtype, const data::Tokenizer& tokenizer) {
  const deck::ModelConfig& model = config.model;
  std::vector<std::int64_t> ends;
  std::int64_t start = -1;
  if (model.encoder.present()) start = deck::span_ids(config).start;
  const std::int64_t image_token = images_of(reader.state().values).token;
  if (model.predicts_spans()) {
    ends = {deck::span_ids(config).end};
  } else if (tokenizer.end_of_document() < model.vocabulary) {
    ends = {tokenizer.end_of_document()};
  }
  for (const std::int64_t id : answer_ends_of(reader)) ends.push_back(id);
  const auto update = [&](const char* name, const auto& updated) {
    const auto file = kept.find(hugging_face::name_in_checkpoint(name));
    if (file == kept.end()) return false;
    // At step 0 the weights are the imported weights, so that the ends of texts do not change.
    const bool trained = reader.state().step > 0;
    const auto added = trained ? ends : std::vector<std::int64_t>{};
    auto [content, changes] =
        updated(file->second, text(reader.folder(), "/", file->first), added, trained ? start : -1);
    out.files[name] = std::move(content);
    for (const std::string& change : changes) out.changes.push_back(text(name, ": ", change));
    return true;
  };
  update(hugging_face::generation_config_name, hugging_face::updated_generation_config);
  const bool imported = update(
      hugging_face::model_config_name,
      [&](const std::string& file, const std::string& path, const auto& added, std::int64_t first) {
        return hugging_face::updated_config(file, path, model, dtype, added, first, image_token);
      });
  if (imported) return;
  check_usage(
      !model.vision.present() || image_token >= 0, reader.folder(),
      ": does not state which token stands for images, which config.json must; train at least "
      "one step on a token file with images, and export that checkpoint");
  out.files[hugging_face::model_config_name] =
      hugging_face::config_text(model, dtype, ends, start, image_token);
  if (ends.size() > 1)
    out.changes.push_back(text(hugging_face::model_config_name,
                               ": eos_token_id = ", nlohmann::json(ends).dump(),
                               ": the end of a document, and the end of the trained answers"));
}

/// Adds the image processor of a model that sees images: the kept one if it prepares images as the
/// training did or if the training's way is unknown, otherwise a new one.
void add_image_processor(Beside& out, const checkpoint::Reader& reader,
                         const checkpoint::Files& kept, const deck::VisionConfig& vision) {
  if (!vision.present()) return;
  const std::string name = hugging_face::image_processor_name;
  const auto content = [&](const char* of) {
    const auto file = kept.find(hugging_face::name_in_checkpoint(of));
    return file == kept.end() ? std::string() : file->second;
  };
  const std::string fit = images_of(reader.state().values).fit;
  const std::string before = content(hugging_face::image_processor_name);
  const std::string processor = content(hugging_face::processor_name);
  const auto imported = hugging_face::image_preparation(before, processor, reader.folder(), vision);
  if (fit.empty() || (imported.is_stated && imported.fit == fit)) {
    if (!before.empty()) out.files[name] = before;
    return;
  }
  const std::string text_of_fit = hugging_face::image_processor_text(vision, fit);
  if (!text_of_fit.empty()) out.files[name] = text_of_fit;
  if (const auto file = out.files.find(hugging_face::processor_name); file != out.files.end()) {
    auto members = nlohmann::ordered_json::parse(file->second);
    if (members.erase("image_processor") > 0) file->second = members.dump(2) + "\n";
  }
  const std::string what =
      before.empty() && processor.empty() ? "" : ", instead of the imported one";
  out.changes.push_back(
      text_of_fit.empty()
          ? text("no ", name, ", because no image processor prepares images with --image-fit ", fit)
          : text(name, ": prepares images as --image-fit ", fit, " of the training", what));
}

/// Adds the files of the tokenizer and of its processor that the checkpoint keeps.
void add_tokenizer(Beside& out, const checkpoint::Files& kept) {
  for (const char* name : data::tokenizer_file_names)
    if (const auto file = kept.find(name); file != kept.end()) out.files.insert(*file);
  for (const std::string name : hugging_face::kept_names)
    if (const auto file = kept.find(hugging_face::name_in_checkpoint(name));
        file != kept.end() && hugging_face::is_of_tokenizer(name))
      out.files[name] = file->second;
}

void run(const ExportOptions& options) {
  const std::int64_t most = shard_bytes(options.shard_size);
  const checkpoint::Reader reader(checkpoint::checkpoint_folder(options.checkpoint));
  const checkpoint::RunState& state = reader.state();
  const deck::Deck deck = stored_deck(reader);
  const deck::ModelConfig& model = deck.config.model;
  const bool adapters = writes_adapters(options, deck);
  const char* const config_name =
      adapters ? hugging_face::adapter_config_name : hugging_face::model_config_name;
  hugging_face::expect_exportable(deck);
  const DType stored = hugging_face::weights_type(reader, model);
  const DType dtype = options.dtype.empty() ? stored : parse<DType>(options.dtype).value();
  const checkpoint::Files kept = reader.kept_files();
  const auto tokenizer = stored_tokenizer(reader, deck, kept);
  Beside beside;
  if (adapters)
    beside.files[config_name] = hugging_face::adapter_config_text(model, options.base);
  else
    add_model_config(beside, reader, kept, deck.config, dtype, *tokenizer);
  if (model.modules() > 0 && !hugging_face::files_have_modules(model.family))
    beside.changes.push_back(
        text(config_name, ": without the modules of ", deck.cite("model", "predicts"),
             ", for which files of the family ", name_of(model.family), " have no place"));
  add_tokenizer(beside, kept);
  if (!adapters) add_image_processor(beside, reader, kept, model.vision);
  expect_no_files(options, beside.files);

  io::remove_temporaries_on_signals();
  io::AtomicFolder folder(options.folder);
  const std::string& to = folder.temporary_path();
  const auto exported = adapters ? hugging_face::export_adapters(reader, model, dtype, to)
                                 : hugging_face::export_weights(reader, model, dtype, to, most);
  for (const auto& [name, content] : beside.files) io::replace_file(to + "/" + name, content);
  const bool in_one_step = folder.commit(
      [&](const std::string& name) {
        const auto old = model_files(options.folder);
        return beside.files.contains(name) ||
               std::ranges::find(old, options.folder + "/" + name) != old.end();
      },
      config_name);
  if (!in_one_step)
    say(options.folder, " was replaced file by file, because the new folder cannot take its ",
        "place");
  say("checkpoint ", reader.folder(), ", step ", with_commas(state.step),
      "; its weights agree with their checksums");
  std::vector<std::string> paths;
  for (const std::string& path : exported.paths)
    paths.push_back(options.folder + "/" + fs::path(path).filename().string());
  say("wrote ", paths.front(),
      paths.size() == 1 ? "" : text(" and ", paths.size() - 2, " more, their index ", paths.back()),
      ", ", human_bytes(exported.bytes), ", ", name_of(dtype),
      options.merge     ? ", with the adapters' updates"
      : dtype == stored ? ", bit for bit"
                        : text(", rounded from ", name_of(stored)));
  say("wrote ", options.folder, "/", config_name);
  const auto say_wrote = [&](bool of_tokenizer, const auto&... what) {
    std::vector<std::string> names;
    for (const auto& [name, content] : beside.files)
      if (name != config_name && is_tokenizer_file(name) == of_tokenizer)
        names.push_back(options.folder + "/" + name);
    if (!names.empty()) say("wrote ", join(names, " and "), what...);
  };
  say_wrote(true, ": the tokenizer ", tokenizer->name(), " of the checkpoint's run");
  say_wrote(false, ": kept from the import");
  for (const std::string& change : beside.changes) say(options.folder, "/", change);
}

}  // namespace

void add_export(CLI::App& app) {
  auto* command = app.add_subcommand(
      "export", "Export a checkpoint's weights as safetensors with Hugging Face's names");
  const auto options = std::make_shared<ExportOptions>();
  command
      ->add_option("CHECKPOINT", options->checkpoint,
                   "Checkpoint folder, or folder of checkpoints or of a run (its latest)")
      ->required()
      ->type_name("");
  command
      ->add_option("OUT_FOLDER", options->folder,
                   "Output folder for config.json and model.safetensors, or its shards and their "
                   "index")
      ->required()
      ->type_name("");
  command
      ->add_option("--dtype", options->dtype,
                   "Type of the weights, rounded to fp32, bf16 or fp16; default: as stored")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->type_name("TYPE");
  command
      ->add_option(
          "--shard-size", options->shard_size,
          "Largest size of a file, such as 5GB; writes several files and an index. A larger tensor "
          "gets its own file. Default: one file")
      ->type_name("SIZE");
  command->add_flag(
      "--merge", options->merge,
      "Add the adapters' updates to the weights, and export the whole model; default: "
      "adapters alone, as PEFT's adapter_config.json and adapter_model.safetensors");
  command
      ->add_option("--base", options->base,
                   "Name or folder of the adapters' model, for base_model_name_or_path of "
                   "adapter_config.json")
      ->type_name("MODEL");
  command->add_flag("--force", options->force, "Replace an existing model");
  command->footer(
      "Optimizer state, step and position in the data are not exported.\n"
      "\nExample:\n  trireme export runs/tiny/checkpoints exported\n"
      "  trireme export runs/large/checkpoints exported --dtype bf16 --shard-size 5GB");
  command->callback([options] { run(*options); });
}

}  // namespace trireme::commands
