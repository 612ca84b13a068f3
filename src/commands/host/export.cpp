// The command trireme export: reads a checkpoint's weights, verifies their checksums, and writes
// them with config.json in the layout of Hugging Face transformers. Runs without MPI or a device.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/folder_writer.hpp>
#include <trireme/hugging_face/weights.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/atomic_folder.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

constexpr const char* config_name = "config.json";

struct ExportOptions {
  std::string checkpoint;
  std::string folder;
  std::string dtype;
  std::string shard_size;
  bool force = false;
};

void expect_no_files(const ExportOptions& options, const std::string& config) {
  std::vector<std::string> there = hugging_face::weight_files(options.folder);
  if (fs::exists(config)) there.push_back(config);
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

void run(const ExportOptions& options) {
  const std::string config = options.folder + "/" + config_name;
  const std::int64_t most = shard_bytes(options.shard_size);
  expect_no_files(options, config);
  const checkpoint::Reader reader(checkpoint::checkpoint_folder(options.checkpoint));
  const checkpoint::RunState& state = reader.state();
  const deck::Deck deck =
      deck::parse_deck(state.deck_toml, text(reader.folder(), "/", checkpoint::deck_name));
  hugging_face::expect_exportable(deck);
  const DType stored = hugging_face::weights_type(reader, deck.config.model);
  const DType dtype = options.dtype.empty() ? stored : parse<DType>(options.dtype).value();
  const auto tokenizer = tokenizer_of(deck);

  io::remove_temporaries_on_signals();
  io::AtomicFolder folder(options.folder);
  const auto exported =
      hugging_face::export_weights(reader, deck.config.model, dtype, folder.temporary_path(), most);
  io::replace_file(
      folder.temporary_path() + "/" + config_name,
      hugging_face::config_text(deck.config.model, dtype, tokenizer->end_of_document()));
  const bool in_one_step = folder.commit(
      [&](const std::string& name) {
        const auto old = hugging_face::weight_files(options.folder);
        return name == config_name ||
               std::ranges::find(old, options.folder + "/" + name) != old.end();
      },
      config_name);
  if (!in_one_step)
    say(options.folder, " was replaced file by file, because a folder beside it cannot take its ",
        "place");
  say("checkpoint ", reader.folder(), ", step ", with_commas(state.step),
      "; its weights agree with their checksums");
  std::vector<std::string> paths;
  for (const std::string& path : exported.paths)
    paths.push_back(options.folder + "/" + fs::path(path).filename().string());
  say("wrote ", paths.front(),
      paths.size() == 1 ? "" : text(" and ", paths.size() - 2, " more, their index ", paths.back()),
      ", ", human_bytes(exported.bytes), ", ", name_of(dtype),
      dtype == stored ? ", bit for bit" : text(", rounded from ", name_of(stored)));
  say("wrote ", config);
}

}  // namespace

void add_export(CLI::App& app) {
  auto* command = app.add_subcommand(
      "export", "Export a checkpoint's weights as safetensors with Hugging Face's names");
  const auto options = std::make_shared<ExportOptions>();
  command
      ->add_option("CHECKPOINT", options->checkpoint,
                   "Checkpoint folder, or folder of checkpoints (its latest)")
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
  command->add_flag("--force", options->force, "Replace an existing model");
  command->footer(
      "Optimizer state, step and position in the data are not exported.\n"
      "\nExample:\n  trireme export runs/tiny/checkpoints exported\n"
      "  trireme export runs/large/checkpoints exported --dtype bf16 --shard-size 5GB");
  command->callback([options] { run(*options); });
}

}  // namespace trireme::commands
