// Restart of `trireme train`: selects a checkpoint, compares it with the run, and loads it.
#include <trireme/commands/restart.hpp>

#include <trireme/architecture/state.hpp>
#include <trireme/base/events.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/lineage.hpp>
#include <trireme/checkpoint/node_local.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/train/load.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::commands {
namespace {

using checkpoint::Opening;
using Differences = std::vector<deck::Difference>;

/// Calls `read` on a verified checkpoint: a UsageError means damage and is rethrown as an Error.
template <class Read>
auto as_damage(const Read& read) {
  try {
    return read();
  } catch (const UsageError& error) {
    throw Error(error.what());
  }
}

checkpoint::Reader reader_of(const std::string& folder) {
  return as_damage([&] { return checkpoint::Reader(folder, Opening::manifest); });
}

/// A remark on a difference that may change results or samples; "" for any other difference.
std::string_view note(const deck::Difference& d, bool same_data) {
  switch (d.effect) {
    case deck::Effect::training:
    case deck::Effect::numbers:
    case deck::Effect::length:
    case deck::Effect::function:
    case deck::Effect::adapter:
    case deck::Effect::storage:
    case deck::Effect::state:
      return "  (changes the numbers from here on)";
    case deck::Effect::samples:
      return same_data ? "  (the same samples)" : "  (other samples from here on)";
    case deck::Effect::none:
    case deck::Effect::place:
    case deck::Effect::batches:
    case deck::Effect::model:
      return "";
  }
  return "";
}

/// Comparison of a checkpoint's deck with the current deck.
struct Comparison {
  Differences differences;
  bool same_batches = true;  ///< every step has the same global batch in both decks
  /// The stored types of the weights are equal; bf16 and fp16 weights are stored in fp32.
  bool same_storage = true;
  /// The checkpoint has all state arrays of the current deck's optimizer, or holds weights only.
  bool has_state = true;
  bool has_adapters = false;  ///< the checkpoint has adapters, which only fit equal adapters
  std::string_view sequence_reason = "";  ///< reason why [model] sequence is fixed
};

DType stored_type(const deck::Deck& deck) {
  return master_type(deck.config.precision.compute);
}

/// Whether the stored deck's optimizer has all state arrays of the current deck's optimizer. A bias
/// that bias_rate changes has some, a constant bias has none. The load of balance = "batch" is such
/// an array, too.
bool stores_state(const deck::Deck& stored, const deck::Deck& deck) {
  const deck::ExpertsConfig& stored_experts = stored.config.model.experts;
  const deck::ExpertsConfig& experts = deck.config.model.experts;
  if (experts.bias_rate > 0 && stored_experts.bias_rate == 0) return false;
  if (experts.keeps_load() && !stored_experts.keeps_load()) return false;
  const auto states_of = [](const deck::Deck& one) {
    return one.config.optimizer.rule().states(one.config.optimizer);
  };
  const auto stored_states = states_of(stored);
  return std::ranges::all_of(states_of(deck), [&](const rules::StateArray& state) {
    return std::ranges::find(stored_states, state) != stored_states.end();
  });
}

/// Compares the checkpoint's deck with the current deck. A stored deck that this version cannot
/// read causes a warning, and the result has no differences.
Comparison compare_to(const checkpoint::Reader& reader, const deck::Deck& deck) {
  const std::string path = reader.folder() + "/" + checkpoint::deck_name;
  try {
    const deck::Deck stored = deck::parse_deck(reader.state().deck_toml, path);
    return {deck::differences(stored, deck),
            deck::BatchSchedule(stored.config.batch) == deck::BatchSchedule(deck.config.batch),
            stored_type(stored) == stored_type(deck),
            train::holds_weights_only(reader) || stores_state(stored, deck),
            std::ranges::any_of(
                reader.arrays(),
                [](const auto& array) { return array.name.ends_with(architecture::adapter_a); }),
            deck::effect_of_sequence(stored.config.model, deck.config.model).reason};
  } catch (const UsageError& error) {
    const std::string_view message = error.what();
    log::warn(text("this version cannot compare ", path, " with ", deck.file_name, ": ",
                   message.substr(0, message.find('\n'))));
    return {};
  }
}

void expect_no(const Differences& contradictions, const Comparison& found,
               const std::string& folder, const std::string& remedy) {
  std::string list;
  for (const auto& d : contradictions)
    list += text("\n  [", d.section, "] ", d.name, " = ", d.current, " (", d.place, "), but ",
                 d.stored, " in ", folder, "/", checkpoint::deck_name,
                 d.name == "sequence" ? text("; ", found.sequence_reason) : "");
  check_usage(list.empty(), "the deck contradicts the checkpoint ", folder, ":", list,
              "\ngive the checkpoint's values", remedy);
}

/// One line per difference: "  parallel.tensor  1 -> 2".
std::string lines_of(const Differences& differences, bool same_data = true) {
  std::size_t name_width = 0;
  std::size_t change_width = 0;
  const auto change = [](const deck::Difference& d) { return d.stored + " -> " + d.current; };
  for (const auto& d : differences) {
    name_width = std::max(name_width, d.full_name().size());
    change_width = std::max(change_width, change(d).size());
  }
  std::string lines;
  for (const auto& d : differences) {
    std::string line = text("\n  ", d.full_name());
    line.resize(name_width + 5, ' ');
    line += change(d);
    const std::string_view effect = note(d, same_data);
    if (!effect.empty()) line.resize(name_width + 5 + change_width, ' ');
    lines += line.append(effect);
  }
  return lines;
}

/// The name of the checkpoint `folder` if it is in `directory`; otherwise "".
std::string name_in(const std::string& directory, const std::string& folder) {
  std::error_code missing;
  const auto path = std::filesystem::canonical(folder, missing);
  return std::filesystem::equivalent(path.parent_path(), directory, missing)
             ? path.filename().string()
             : "";
}

}  // namespace

Restart::Restart(grid::Runtime& runtime, const deck::Deck& deck, const Identity& identity)
    : runtime_(runtime), deck_(deck), identity_(identity) {
  choose();
}

bool Restart::by_name() const {
  const std::string& restart = deck_.config.checkpoint.restart;
  return restart != "none" && restart != "latest";
}

/// Sets folder_ to the next candidate: the choice of choose_shared(), or a newer local checkpoint,
/// which is copied to the checkpoint directory. Collective.
void Restart::choose() {
  grid::Heartbeat::publish({"restart"});
  choose_shared();
  const deck::CheckpointConfig& c = deck_.config.checkpoint;
  if (c.restart != "latest" || c.local.empty()) return;
  const std::string name = folder_.substr(folder_.find_last_of('/') + 1);
  const auto collected =
      collect_local_checkpoint(runtime_, c, checkpoint::step_of(name).value_or(-1), local_before_,
                               [this](const checkpoint::Manifest& m) { return refusal(m); });
  if (!collected) return;
  local_before_ = *collected;  // each candidate is tried once
  choose_shared();
}

/// Sets folder_ to the checkpoint that the deck names, or to the latest checkpoint that is not in
/// damaged_; "" if there is none. Rank 0 chooses and compares the checkpoint. Collective.
void Restart::choose_shared() {
  folder_ = found_by_one(runtime_, [&]() -> std::string {
    const deck::CheckpointConfig& c = deck_.config.checkpoint;
    if (c.restart == "none") {
      expect_restart(deck_);
      return "";
    }
    if (by_name()) {
      const std::string folder = find_checkpoint(deck_, c.restart);
      compare(checkpoint::Reader(folder));
      return folder;
    }
    while (const auto folder = checkpoint::latest(c.directory, damaged_)) {
      std::optional<checkpoint::Reader> reader;
      try {
        reader.emplace(reader_of(*folder));
      } catch (const Error& error) {  // changed since its verification, or the disk fails
        pass_over(*folder, error.what());
        continue;
      }
      compare(*reader);
      return *folder;
    }
    return "";
  });
}

void Restart::pass_over(const std::string& folder, const std::string& reason) {
  log::warn(text("checkpoint ", folder, " is skipped: ", reason));
  damaged_.insert(folder);
}

void Restart::compare(const checkpoint::Reader& reader) {
  Differences contradictions;
  Differences harmless;
  const Comparison found = compare_to(reader, deck_);
  const bool other_batches =  // at step 0 any batches are allowed
      reader.state().step > 0 && !found.same_batches;
  for (const auto& d : found.differences) {
    if (d.effect == deck::Effect::model ||
        (d.effect == deck::Effect::adapter && found.has_adapters) ||
        (d.effect == deck::Effect::state && !found.has_state) ||
        (d.effect == deck::Effect::storage && !found.same_storage) ||
        (d.effect == deck::Effect::batches && other_batches))
      contradictions.push_back(d);
    else if (d.effect != deck::Effect::place)
      harmless.push_back(d);
  }
  expect_no(contradictions, found, reader.folder(),
            ", or start a new run with checkpoint.restart=none and another run.directory");
  differences_ = lines_of(harmless, same_training_data(reader, identity_));
  compare_data(reader);
}

/// UsageError, or with data.replaced a warning, if the tokenizer differs, or if a file of an
/// unchanged data.train differs. Other kernels or validation tokens only cause a warning.
void Restart::compare_data(const checkpoint::Reader& reader) {
  warnings_.clear();
  const bool same_paths =
      differences_.find("\n  data.train ") == std::string::npos && reader.state().step > 0;
  for (const std::string& difference :
       {tokenizer_difference(reader, deck_, identity_), image_difference(reader, deck_, identity_),
        same_paths ? data_difference(reader, deck_, identity_) : ""}) {
    if (difference.empty()) continue;
    check_usage(deck_.config.data.replaced, difference);
    warnings_.push_back(text(difference, ": accepted, because data.replaced = true"));
  }
  // A difference of [precision] is already listed and explains other kernels.
  const bool same_precision = differences_.find("\n  precision.") == std::string::npos;
  if (const std::string kernels = kernel_difference(reader, identity_);
      !kernels.empty() && same_precision && reader.state().step > 0)
    warnings_.push_back(kernels);
  if (!same_validation_data(reader, identity_))
    warnings_.push_back(text(deck_.cite("data", "validation"), " holds other tokens than when ",
                             reader.folder(), " was saved: losses of evaluations before and after ",
                             "it are not comparable"));
}

Beginning Restart::load(train::Engine& engine) {
  const deck::BatchSchedule batches(deck_.config.batch);
  while (!folder_.empty()) {
    checkpoint::RunState state;
    bool weights_only = false;
    Identity identity = identity_;
    checkpoint::Lineage tip;
    const auto read = [&] {
      const checkpoint::Reader reader =
          by_name() ? checkpoint::Reader(folder_, Opening::manifest) : reader_of(folder_);
      state = reader.state();
      weights_only = train::holds_weights_only(reader);
      check_usage(
          state.samples == batches.samples(state.step), folder_, ": its ", state.step,
          " steps took ", state.samples, " samples, with ", deck_.cite("batch", "global"),
          batches.phases().size() > 1 ? text(" and ", deck_.cite("batch", "ramp_start")) : "",
          " they would be ", batches.samples(state.step), "; resume with the [batch] of ", folder_,
          "/", checkpoint::deck_name);
      inherit(identity, reader);
      if (runtime_.rank() == 0) tip = as_damage([&] { return checkpoint::read_lineage(folder_); });
      engine.load(reader);
    };
    if (by_name()) {
      runtime_.together(read);
    } else if (const auto damage = damage_found(runtime_, read)) {
      engine.initialise();  // no values that were read may remain
      if (runtime_.rank() == 0) {
        pass_over(folder_, *damage);
      }
      choose();
      continue;
    }
    report(state, !weights_only);
    return {state.step, begin_branch(tip), identity};
  }
  start_fresh(engine);
  return {std::nullopt, begin_branch(std::nullopt), identity_};
}

void Restart::report(const checkpoint::RunState& state, bool optimizer_state) const {
  events::record(events::Restart{events::former_end(), deck_.config.checkpoint.restart, folder_,
                                 state.layout, state.samples, optimizer_state},
                 state.step);
  say("restarted from ", folder_, " after step ", state.step, ", ", with_commas(state.samples),
      " samples");
  if (!differences_.empty()) say("differs from the deck of ", folder_, ":", differences_);
  for (const std::string& warning : warnings_) log::warn(warning);
}

void Restart::start_fresh(train::Engine& engine) {
  const deck::CheckpointConfig& c = deck_.config.checkpoint;
  engine.initialise();
  const char* intact = checkpoint::folders_in(c.directory).empty() ? "" : "intact ";
  if (c.restart == "latest")
    say("no ", intact, "checkpoint in ", c.directory, ": starting at step 1");
}

/// Reason why a local checkpoint is not used in place of `folder_`; "" if it is used.
std::string Restart::refusal(const checkpoint::Manifest& local) const {
  const checkpoint::Lineage tip{local.step, local.starts};
  std::int64_t step = -1;
  if (!folder_.empty()) {
    const checkpoint::Lineage base = checkpoint::read_lineage(folder_);
    step = base.step;
    if (!precedes(base, tip)) return text("it does not continue from ", folder_);
  }
  const std::string& directory = deck_.config.checkpoint.directory;
  for (const auto& [name, lineage] : checkpoint::members_of(directory))
    if (lineage.step > step && !damaged_.contains(directory + "/" + name) &&
        (precedes(lineage, tip) || precedes(tip, lineage)))
      return text("it belongs to the branch of ", directory, "/", name, ", and `",
                  checkpoint::latest_name, "` names an earlier checkpoint");
  return "";
}

/// Moves checkpoints from which this run does not continue to another folder, and begins an
/// attempt. `tip`: on rank 0, the lineage of the loaded checkpoint, if any. Returns the starts of
/// this run on rank 0, an empty list on other ranks. Collective.
std::vector<checkpoint::Start> Restart::begin_branch(
    const std::optional<checkpoint::Lineage>& tip) const {
  std::vector<checkpoint::Start> starts;
  runtime_.together([&] {
    if (runtime_.rank() > 0) return;
    const std::string& directory = deck_.config.checkpoint.directory;
    const auto others =
        tip ? checkpoint::not_on_branch(directory, *tip) : checkpoint::folders_in(directory);
    const bool moves = !tip || !others.empty();
    const std::string aside = moves ? checkpoint::move_aside(directory, others) : "";
    if (!aside.empty() && !others.empty())
      say("checkpoints that do not belong to this run were moved to ", aside, ": ",
          join(others, ", "));
    if (const std::string name = name_in(directory, folder_); tip && !name.empty())
      checkpoint::settle_latest(directory, name);
    const checkpoint::Attempt attempt = checkpoint::begin_attempt(directory);
    const checkpoint::Lineage from = tip.value_or(checkpoint::Lineage{});
    starts = from.starts;
    starts.push_back({attempt.run, attempt.number, from.step, from.digest});
  });
  return starts;
}

std::optional<std::string> damage_found(grid::Runtime& runtime,
                                        const std::function<void()>& local) {
  std::optional<std::string> mine;
  runtime.together([&] {
    try {
      local();
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      mine = error.what();
    }
  });
  const std::int64_t nobody = runtime.ranks();
  const auto speaker = runtime.world().all_reduce<std::int64_t>(
      mine ? runtime.rank() : nobody, grid::Reduction::minimum, "agreement on damage");
  if (speaker == nobody) return std::nullopt;
  return runtime.world().broadcast(mine.value_or(""), static_cast<int>(speaker), "what is damaged");
}

std::string find_model(grid::Runtime& runtime, const deck::Deck& deck, const std::string& where,
                       bool as_deck) {
  return found_by_one(runtime, [&] {
    std::string folder = find_checkpoint(deck, where);
    const checkpoint::Reader reader(folder);
    const Comparison found = compare_to(reader, deck);
    Differences contradictions, listed;
    for (const auto& d : found.differences) {
      const bool of_function = d.effect == deck::Effect::function;
      if (d.effect == deck::Effect::model || (of_function && !as_deck) ||
          (d.effect == deck::Effect::adapter && found.has_adapters))
        contradictions.push_back(d);
      else if (of_function || d.effect == deck::Effect::numbers ||
               d.effect == deck::Effect::storage)
        listed.push_back(d);
    }
    const bool as_deck_helps =
        std::ranges::count(contradictions, deck::Effect::function, &deck::Difference::effect) ==
        std::ssize(contradictions);
    expect_no(contradictions, found, folder,
              text(" (", folder, "/deck.toml is a deck), or name another checkpoint",
                   as_deck_helps ? ", or give --as-deck to compute the deck's function" : ""));
    expect_same_tokenizer(reader, deck);
    if (!listed.empty())
      log::warn(text("the deck differs from the deck of ", folder, ":", lines_of(listed)));
    return folder;
  });
}

}  // namespace trireme::commands
