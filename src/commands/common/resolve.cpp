// Resolves values that a deck alone does not determine: the vocabulary, the layout for a number of
// ranks and the checkpoint to continue from.
#include <trireme/commands/resolve.hpp>

#include <trireme/architecture/frozen.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/lineage.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/images.hpp>
#include <trireme/data/blend.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/model_checks.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/machine_file.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/plan/search.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

namespace trireme::commands {
namespace {

void expect_same_tokenizer(const deck::Deck& deck, const data::Tokenizer& tokenizer,
                           const data::TokenSource& file) {
  if (file.tokenizer().empty() || file.tokenizer() == tokenizer.name()) return;
  const data::TokenizerSource made_with = file.tokenizer_source();
  throw UsageError(text(file.path(), " was made with the tokenizer ", file.tokenizer(),
                        made_with.path == "bytes" ? "" : text(" (from ", made_with.path, ")"),
                        ", but ", deck.file_name, " has ", deck.cite("data", "tokenizer"),
                        tokenizer.name() == "bytes" ? "" : text(", which is ", tokenizer.name()),
                        "; set data.tokenizer=", made_with.path, " or tokenize the text again"));
}

std::unique_ptr<data::TokenSource> open_token_file(const deck::Deck& deck, const std::string& key,
                                                   const std::string& path) {
  const std::string cited = deck.cite("data", key);
  const bool alone = cited.find(text(" = \"", path, "\"")) != std::string::npos;
  check_usage(data::tokens_exist(path), cited, ": no such file", alone ? "" : text(" ", path),
              "; make it with `trireme tokenize -o ", path, " TEXT...`");
  try {
    auto file = data::open_tokens(path, deck.config.model.vocabulary);
    check_usage(deck.config.model.vision.present() || !file->images(), path,
                ": has images, which this deck's model does not see; set [vision] layers, or "
                "tokenize the texts without images");
    return file;
  } catch (const UsageError& error) {
    throw UsageError(text("[data] ", key, " (", deck.where("data", key), "): ", error.what()));
  }
}

/// Number of ids at the end of the vocabulary that are reserved for special tokens.
std::int64_t added_ids(const deck::Config& config) {
  if (config.model.encoder.present()) return deck::added_span_ids(config);
  if (!config.model.predicts_masked_tokens()) return 0;
  const deck::DataConfig& d = config.data;
  if (d.class_token < 0) return 3;
  if (d.separator_token < 0) return 2;
  return d.mask_token < 0 ? 1 : 0;
}

}  // namespace

std::vector<data::WeightedSource> TrainingData::parts() const {
  std::vector<data::WeightedSource> parts;
  for (std::size_t i = 0; i < files.size(); ++i) parts.push_back({files[i].get(), weights[i]});
  return parts;
}

std::int64_t TrainingData::tokens() const {
  std::int64_t tokens = 0;
  for (const auto& file : files) tokens += file->tokens();
  return tokens;
}

TrainingData open_if_there(const deck::Deck& deck) {
  const auto entries = data::parse_blend(deck.config.data.train);
  const bool any = std::any_of(entries.begin(), entries.end(),
                               [](const auto& entry) { return data::tokens_exist(entry.path); });
  return any ? open_training_data(deck) : TrainingData{};
}

TrainingData open_training_data(const deck::Deck& deck) {
  TrainingData data;
  for (const auto& entry : data::parse_blend(deck.config.data.train)) {
    data.files.push_back(open_token_file(deck, "train", entry.path));
    data.weights.push_back(entry.weight);
  }
  images_of(data);  // which expects equal forms
  return data;
}

std::vector<std::string> blend_text(const data::Samples& samples, std::int64_t of_run) {
  std::vector<std::string> lines;
  if (samples.files() == 1) return lines;
  const std::vector<std::int64_t> taken = samples.of_files(of_run);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const std::int64_t epoch = samples.per_epoch(i);
    const double epochs = static_cast<double>(taken[i]) / static_cast<double>(epoch);
    lines.push_back(text(samples.windows(i).path(), ": ", with_commas(taken[i]), " of the run's ",
                         with_commas(of_run), " samples, ", fixed(epochs, 2), " epochs of ",
                         with_commas(epoch)));
  }
  return lines;
}

std::unique_ptr<data::Tokenizer> tokenizer_of(const deck::Deck& deck) {
  try {
    return data::make_tokenizer({deck.config.data.tokenizer, deck.config.data.end_of_document});
  } catch (const UsageError& error) {
    throw UsageError(
        text("[data] tokenizer (", deck.where("data", "tokenizer"), "): ", error.what()));
  }
}

namespace {

void find_vocabulary(deck::Deck& deck, const TrainingData& data) {
  const auto tokenizer = tokenizer_of(deck);
  std::int64_t& vocabulary = deck.config.model.vocabulary;
  if (data.files.empty()) {
    check_usage(vocabulary > 0, deck.cite("data", "train"), ": no such file, and ", deck.file_name,
                " does not set [model] vocabulary; make the file with `trireme tokenize -o FILE ",
                "TEXT...`, or set model.vocabulary to plan without it");
    return;
  }
  std::int64_t needed = 0;
  for (const auto& file : data.files) {
    expect_same_tokenizer(deck, *tokenizer, *file);
    check_usage(file->vocabulary() > 0, deck.file_name, ": [model] vocabulary is not set, and ",
                file->path(),
                " does not store its tokenizer's number of ids; set model.vocabulary");
    needed = std::max(needed, file->vocabulary());
    check_usage(vocabulary == 0 || vocabulary >= file->vocabulary(),
                deck.cite("model", "vocabulary"), " is smaller than the ", file->vocabulary(),
                " ids of ", file->path(), "; choose at least that many");
  }
  const std::int64_t special = added_ids(deck.config);
  if (vocabulary == 0) {
    vocabulary = needed + special;
    const deck::SpecialTokens ids = deck::special_tokens(deck.config);
    if (deck.config.model.predicts_masked_tokens())
      vocabulary = std::max({vocabulary, ids.begin + 1, ids.separator + 1, ids.mask + 1});
    const deck::DataConfig& d = deck.config.data;
    if (deck.config.model.encoder.present()) vocabulary = std::max(vocabulary, d.start_token + 1);
    if (deck.config.model.predicts_spans())
      vocabulary = std::max({vocabulary, d.end_token + 1, d.sentinel_token + 1});
  }
  check_usage(vocabulary >= needed + special, deck.cite("model", "vocabulary"),
              " leaves no room for ",
              deck.config.model.predicts_spans() ? "start, end and sentinels"
              : deck.config.model.reads_pairs()  ? "a start token"
                                                 : "[CLS], [SEP] and [MASK]",
              " after the ", needed, " ids of the token file; choose ", needed + special,
              deck.config.model.predicts_spans()
                  ? ", or give [data] start_token, end_token and sentinel_token"
              : deck.config.model.reads_pairs()
                  ? ", or give [data] start_token"
                  : ", or give [data] class_token, separator_token and mask_token");
  deck::check_special_tokens(deck);
}

}  // namespace

void resolve_vocabulary(deck::Deck& deck, const TrainingData& data) {
  find_vocabulary(deck, data);
  architecture::expect_trainable(deck);
}

TrainingData resolve_data(deck::Deck& deck, bool elsewhere) {
  TrainingData data;
  try {
    data = open_if_there(deck);
    resolve_vocabulary(deck, data);
    return data;
  } catch (const UsageError& mismatch) {
    if (!elsewhere) throw;
    std::int64_t& vocabulary = deck.config.model.vocabulary;
    if (vocabulary == 0)
      for (const auto& file : data.files)
        vocabulary = std::max(vocabulary, file->vocabulary() + added_ids(deck.config));
    if (vocabulary == 0) throw;
    deck::check_special_tokens(deck);
    architecture::expect_trainable(deck);
    log::warn(text(mismatch.what(), "\n  The plan for another machine does not use these files."));
  }
  return {};
}

void resolve_layout(deck::Deck& deck, std::int64_t ranks, const plan::Machine& machine) {
  const deck::ParallelConfig& p = deck.config.parallel;
  if (p.layout == LayoutMode::given) return;
  if (p.machine.empty()) return plan::choose_layout(deck, ranks, machine);
  const plan::Machine planned = plan::load_machine(p.machine);
  check_usage(planned.device.kind == machine.device.kind, deck.cite("parallel", "machine"),
              " describes a machine with kind = \"", name_of(planned.device.kind), "\", but ",
              machine.called(), " has kind = \"", name_of(machine.device.kind),
              "\"; give a file of this machine, or leave machine out");
  plan::choose_layout(deck, ranks, planned);
}

std::string layout_text(const deck::Deck& deck) {
  if (deck.layout_reason.empty()) return "";
  const deck::ParallelConfig& p = deck.config.parallel;
  return text("data ", p.data, " · pipeline ", p.pipeline, " · tensor ", p.tensor, ", ",
              name_of(p.schedule), p.chunks > 1 ? text(" with ", p.chunks, " chunks") : "",
              ", micro-batches of ", deck.config.batch.micro,
              p.sequence_parallel ? ", sequence parallel" : "",
              p.recompute == Recompute::none ? "" : text(", recompute ", name_of(p.recompute)),
              p.shard == Sharding::none ? "" : text(", shard ", name_of(p.shard)), ": ",
              deck.layout_reason);
}

PlannedRun deck_for_ranks(const std::string& path, const std::vector<std::string>& overrides,
                          std::int64_t ranks, const plan::Machine& machine, bool elsewhere) {
  deck::Deck deck = deck::load_deck(path, overrides);
  plan::expect_available(deck, machine);
  const deck::ParallelConfig& p = deck.config.parallel;
  const bool given = p.layout == LayoutMode::given;
  check_usage(given || ranks > 0, deck.cite("parallel", "layout"),
              " chooses a layout for a number of ranks; give --ranks");
  if (ranks == 0) ranks = p.model_ranks() * (std::max<std::int64_t>(1, p.data) + p.server_places());
  if (given) deck::resolve_parallel(deck, ranks);
  TrainingData training = resolve_data(deck, elsewhere);
  if (!given) {
    resolve_layout(deck, ranks, machine);
    deck::resolve_parallel(deck, ranks);
  }
  plan::resolve_recompute(deck, machine);
  return {std::move(deck), std::move(training)};
}

std::unique_ptr<data::TokenSource> open_validation_file(const deck::Deck& deck) {
  auto file = open_token_file(deck, "validation", deck.config.data.validation);
  expect_same_tokenizer(deck, *tokenizer_of(deck), *file);
  check_usage(file->vocabulary() <= deck.config.model.vocabulary, file->path(), " has ",
              file->vocabulary(), " ids, the model only ", deck.config.model.vocabulary);
  return file;
}

std::vector<std::int32_t> bytes_of_token(const deck::Deck& deck, const data::TokenSource& file) {
  const auto tokenizer = tokenizer_of(deck);
  const std::int64_t vocabulary = deck.config.model.vocabulary;
  std::vector<std::int32_t> bytes(static_cast<std::size_t>(vocabulary), 0);
  if (file.tokenizer().empty() && tokenizer->vocabulary() < vocabulary) return bytes;
  for (std::int32_t id = 0; id < std::min(vocabulary, tokenizer->vocabulary()); ++id)
    bytes[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(tokenizer->text_bytes(id));
  return bytes;
}

namespace {

constexpr double most_padding = 0.05;
constexpr double most_cut = 0.01;

void warn_of_pairs(const data::TokenSource& file, const data::PackedPairs& pairs) {
  const double cut = pairs.share_cut();
  if (cut > most_cut)
    log::warn(text(file.path(), ": ", fixed(100 * cut, 1),
                   " % of its pairs are longer than a sample, and their ends are left out; choose "
                   "a longer [encoder] sequence or [model] sequence"));
  if (pairs.source_padding() > most_padding || pairs.target_padding() > most_padding)
    log::warn(text(file.path(), ": ", fixed(100 * pairs.source_padding(), 1),
                   " % of the tokens of sources and ", fixed(100 * pairs.target_padding(), 1),
                   " % of those of targets are padding; choose ",
                   pairs.count() == pairs.samples() ? "[data] packing = \"documents\", or " : "",
                   "another [encoder] sequence or [model] sequence"));
}

}  // namespace

std::string packing_text(const data::TokenSource& file, const data::Windows& windows) {
  return text(file.path(), ": ",
              windows.documents() != nullptr ? windows.documents()->description()
              : windows.pairs() != nullptr   ? windows.pairs()->description()
                                             : windows.packed()->description());
}

void warn_of_packing(const data::TokenSource& file, const data::Windows& windows) {
  if (windows.documents() != nullptr) {
    if (const double padding = windows.documents()->padding(); padding > most_padding)
      log::warn(text(file.path(), ": ", fixed(100 * padding, 1),
                     " % of the tokens of its samples are padding; choose a shorter [model] "
                     "sequence, or documents of about equal length"));
    return;
  }
  if (windows.pairs() != nullptr) return warn_of_pairs(file, *windows.pairs());
  const data::PackedDocuments& packed = *windows.packed();
  if (packed.documents() == 1 && packed.cut() > 0)
    log::warn(text(file.path(),
                   " has one document, so that [data] packing = \"documents\" only "
                   "cuts it; tokenize with --document-separator to have documents"));
  if (packed.documents() > 1 && packed.padding() > most_padding)
    log::warn(text(file.path(), ": ", fixed(100 * packed.padding(), 1),
                   " % of the tokens of its samples are padding; choose another [model] sequence, "
                   "or [data] packing = \"none\" (its documents have ",
                   file.tokens() / packed.documents(), " tokens on average)"));
}

namespace {

/// UsageError unless `folder` is a folder with a manifest; the error suggests a checkpoint.
void expect_checkpoint(const std::string& folder, const std::string& directory) {
  std::error_code ignored;
  const bool exists = std::filesystem::is_directory(folder, ignored);
  if (exists && std::filesystem::exists(folder + "/" + checkpoint::manifest_name, ignored)) return;
  auto inside = exists ? checkpoint::latest(folder) : std::nullopt;
  if (exists && !inside) inside = checkpoint::latest(folder + "/checkpoints");
  const std::string word =
      exists || folder.find('/') != std::string::npos ? "" : nearest(folder, {"none", "latest"});
  const auto newest = inside ? inside : checkpoint::latest(directory);
  std::string remedy = newest ? "give " + *newest : "copy it again, or train first";
  if (newest && exists && !inside) remedy = "copy it again, or " + remedy;
  if (!word.empty()) remedy = text("did you mean ", word, "?");
  throw UsageError(text(folder,
                        exists ? " is not a complete checkpoint, because it has no manifest.json; "
                               : ": no such checkpoint folder; ",
                        remedy));
}

/// UsageError if the checkpoint directory contains only an imported model.
void expect_no_import(const deck::Deck& deck) {
  const std::string& directory = deck.config.checkpoint.directory;
  const auto members = checkpoint::members_of(directory);
  check_usage(members.size() != 1 || members.front().lineage.step > 0 ||
                  !members.front().lineage.starts.empty(),
              deck.cite("checkpoint", "restart"), " trains random weights, but ", directory, "/",
              checkpoint::folder_name(0),
              " holds imported weights; train them with checkpoint.restart=latest, or choose "
              "another run.directory");
}

}  // namespace

std::string find_checkpoint(const deck::Deck& deck, const std::string& where) {
  if (where != "latest") {
    expect_checkpoint(where, deck.config.checkpoint.directory);
    return where.substr(0, where.find_last_not_of('/') + 1);
  }
  const std::string& directory = deck.config.checkpoint.directory;
  const auto folder = checkpoint::latest(directory);
  check_usage(folder.has_value(), "there is no complete checkpoint in ", directory,
              "; train first, or give a checkpoint's folder");
  return *folder;
}

void expect_restart(const deck::Deck& deck) {
  const std::string& restart = deck.config.checkpoint.restart;
  if (restart == "none")
    expect_no_import(deck);
  else if (restart != "latest")
    find_checkpoint(deck, restart);
}

}  // namespace trireme::commands
