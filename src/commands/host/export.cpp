#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/checkpoint_folder.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/exchange/gpt2_config.hpp>
#include <trireme/exchange/gpt2_weights.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/temporaries.hpp>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>
#include <optional>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string checkpoint;
  std::string folder;
  std::string dtype;
  bool force = false;
};

/// The folder of the files; one that was made here goes away again unless kept.
class OutputFolder {
 public:
  explicit OutputFolder(const std::string& path) : path_(path) {
    std::error_code error;
    made_ = fs::create_directories(path, error);
    check_usage(!error && fs::is_directory(path), path, ": cannot make this folder",
                error ? ": " + error.message() : "");
  }
  ~OutputFolder() {
    std::error_code ignored;
    if (made_) fs::remove(path_, ignored);
  }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  void keep() { made_ = false; }

 private:
  std::string path_;
  bool made_ = false;
};

void run(const ExportOptions& options) {
  const std::string weights = options.folder + "/model.safetensors";
  const std::string config = options.folder + "/config.json";
  for (const auto& path : {weights, config})
    check_usage(options.force || !fs::exists(path), path,
                ": is there; choose another folder or give --force to replace it");
  const checkpoint::Reader reader(checkpoint_folder(options.checkpoint));
  const checkpoint::RunState& state = reader.state();
  const deck::Deck deck =
      deck::parse_deck(state.deck_toml, text(reader.folder(), "/", checkpoint::deck_name));
  check_usage(deck.config.model.family == Family::gpt, reader.folder(),
              ": holds a model of family ", name_of(deck.config.model.family),
              ", and only gpt is exported in this version");
  const DType stored = exchange::weights_type(reader, deck.config.model);
  const DType dtype = options.dtype.empty() ? stored : parse<DType>(options.dtype).value();
  const auto tokenizer = tokenizer_of(deck);

  io::remove_temporaries_on_signals();
  OutputFolder folder(options.folder);
  io::AtomicFile config_file(config);
  const std::string content =
      exchange::gpt2_config_text(deck.config.model, dtype, tokenizer->end_of_document());
  config_file.write(0, content.data(), content.size());
  const auto bytes = exchange::export_gpt2(reader, deck.config.model, dtype, weights);
  folder.keep();
  config_file.commit();
  say("checkpoint ", reader.folder(), ", step ", with_commas(state.step),
      "; its weights agree with their checksums");
  say("wrote ", weights, ", ", human_bytes(bytes), ", ", name_of(dtype),
      dtype == stored ? ", bit for bit" : text(", rounded from ", name_of(stored)));
  say("wrote ", config);
}

}  // namespace

void add_export(CLI::App& app) {
  auto* command = app.add_subcommand(
      "export", "A checkpoint's weights as safetensors with Hugging Face's GPT-2 names");
  const auto options = std::make_shared<ExportOptions>();
  command
      ->add_option("CHECKPOINT", options->checkpoint,
                   "Checkpoint folder, or folder of checkpoints (its latest)")
      ->required()
      ->type_name("");
  command
      ->add_option("OUT_FOLDER", options->folder,
                   "Where model.safetensors and config.json are written")
      ->required()
      ->type_name("");
  command
      ->add_option("--dtype", options->dtype,
                   "Round the weights to fp32, bf16 or fp16; without it they keep their bits")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->type_name("TYPE");
  command->add_flag("--force", options->force, "Replace files that are there");
  command->footer(
      "The optimizer's state, the step and the position in the data are not exported.\n"
      "\nExample:\n  trireme export runs/tiny/checkpoints exported");
  command->callback([options] { run(*options); });
}

}  // namespace trireme::commands
