// The common beginning of the engine's commands, with errors that end all ranks together.
#include <trireme/commands/session.hpp>

#include <trireme/base/checksum.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/grid/devices.hpp>
#include <trireme/grid/transport.hpp>
#include <trireme/installation/this_installation.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/recompute.hpp>

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace trireme::commands {
namespace {

/// Error if ranks have read different decks. Collective.
void compare_decks(grid::Runtime& runtime, const deck::Deck& deck) {
  const std::string resolved = deck::resolved_toml(deck);
  const std::string mine = checksum(resolved.data(), resolved.size()).hex();
  const auto all = runtime.world().gather(mine, 0, "comparison of decks");
  runtime.together([&] {
    for (std::size_t r = 0; r < all.size(); ++r)
      check(all[r] == mine, "rank ", r, " read another deck than rank 0: ", deck.file_name,
            " is not the same file on every node");
  });
}

/// With layout = "auto", rank 0 chooses the layout and sends it to all ranks, because searches on
/// different nodes could differ. Collective.
void share_layout(grid::Runtime& runtime, deck::Deck& deck, const plan::Machine& machine) {
  if (deck.config.parallel.layout == LayoutMode::given) return;
  std::string chosen;
  runtime.together([&] {
    if (runtime.rank() > 0) return;
    deck::Deck copy = deck;
    resolve_layout(copy, runtime.ranks(), machine);
    chosen = join(deck::layout_overrides(copy), "\n") + "\n" + copy.layout_reason;
  });
  std::istringstream lines(runtime.world().broadcast(chosen, 0, "layout"));
  std::vector<std::string> overrides(deck::layout_keys().size());
  for (std::string& line : overrides) std::getline(lines, line);
  std::string reason;
  std::getline(lines, reason, '\0');
  runtime.together([&] {
    deck::set_layout(deck, overrides, reason);
    deck::resolve_parallel(deck, runtime.ranks());
  });
}

/// Makes each group of model_ranks() ranks a replica; if groups leave ranks over, each single rank.
/// Each replica has all experts unless [parallel] expert divides the replicas.
void replicate(deck::ParallelConfig& p, std::int64_t ranks) {
  if (ranks % p.model_ranks() != 0) p.tensor = p.context = p.pipeline = p.chunks = 1;
  if (std::ssize(p.partition) != p.stages()) p.partition.clear();
  p.strategy = DataStrategy::all_reduce;
  p.workers = 1;
  p.data = ranks / p.model_ranks();
  if (p.replicas() % p.expert != 0) p.expert = 1;
}

/// Like replicate(), for generation, which has no context axis and one stage per pipeline rank, and
/// whose replicas work alone.
void replicate_for_generation(deck::ParallelConfig& p, std::int64_t ranks) {
  p.context = p.chunks = p.expert = 1;
  p.placement = StagePlacement::round_robin;
  p.vocabulary = VocabularyPlacement::stage;
  p.sequence_parallel = false;
  replicate(p, ranks);
}

}  // namespace

Session open_session(grid::Runtime& runtime, const std::string& deck_file,
                     const std::vector<std::string>& overrides, Ranks ranks) {
  Session s;
  s.machine = installation::this_machine();
  runtime.together([&] {
    s.deck = deck::load_deck(deck_file, overrides);
    plan::expect_available(s.deck, s.machine);
    const bool given = s.config().parallel.layout == LayoutMode::given;
    if (ranks == Ranks::as_deck_says && given)
      deck::resolve_parallel(s.deck, runtime.ranks());
    else if (ranks == Ranks::replicas_for_generation)
      replicate_for_generation(s.deck.config.parallel, runtime.ranks());
    else if (ranks == Ranks::any_replicas)
      replicate(s.deck.config.parallel, runtime.ranks());
    // Evaluation and generation need the training files only for an unknown vocabulary.
    const bool wanted = ranks == Ranks::as_deck_says || s.deck.config.model.vocabulary == 0;
    if (wanted) s.training = open_if_there(s.deck);
    resolve_vocabulary(s.deck, s.training);
  });
  if (ranks == Ranks::as_deck_says) share_layout(runtime, s.deck, s.machine);
  runtime.together([&] {
    if (ranks == Ranks::as_deck_says) plan::resolve_recompute(s.deck, s.machine);
    s.architecture = architecture::describe(s.deck.config.model);
  });
  compare_decks(runtime, s.deck);
  const deck::ParallelConfig& p = s.deck.config.parallel;
  s.grid = std::make_unique<grid::Grid>(
      runtime.world(), layout::ProcessGrid(p.axes(), runtime.ranks()), p.stage_map());
  grid::expect_devices(runtime, p.share_devices);
  if (plan::uses_nccl(p, s.machine)) {
    grid::load_nccl(runtime);
    s.grid->use_transports(grid::make_nccl_transport);
  }
  return s;
}

std::string found_by_one(grid::Runtime& runtime, const std::function<std::string()>& find) {
  std::string folder;
  runtime.together([&] {
    if (runtime.rank() == 0) folder = find();
  });
  return runtime.world().broadcast(folder, 0, "checkpoint folder");
}

void expect_output_written(grid::Runtime& runtime) {
  runtime.together([] {
    check(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, "cannot write to standard output");
  });
}

}  // namespace trireme::commands
