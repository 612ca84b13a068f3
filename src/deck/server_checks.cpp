// Conditions on a deck with parameter servers ([parallel] strategy = "server").
#include <trireme/deck/server_checks.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

namespace trireme::deck {
namespace {

/// Keys that have an effect with servers only.
std::vector<std::string> unused_keys(const Deck& deck) {
  const ParallelConfig& p = deck.config.parallel;
  std::vector<std::string> mistakes;
  const auto needs_servers = [&](bool is_set, const char* name, const char* remedy) {
    if (is_set)
      mistakes.push_back(text(deck.cite("parallel", name), " needs strategy = \"server\", not ",
                              deck.cite("parallel", "strategy"), "; set strategy, or ", remedy));
  };
  needs_servers(p.servers > 1, "servers", "leave servers out");
  needs_servers(p.staleness > 0, "staleness", "choose staleness = 0");
  needs_servers(p.updates == ServerUpdates::push, "updates", "choose updates = \"step\"");
  needs_servers(!p.replay.empty(), "replay", "leave replay out");
  return mistakes;
}

std::string ranks_text(std::int64_t ranks) {
  return text(ranks, ranks == 1 ? " rank" : " ranks");
}

}  // namespace

std::vector<std::string> server_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  const ParallelConfig& p = c.parallel;
  if (!p.has_servers()) return unused_keys(deck);
  std::vector<std::string> mistakes;
  const auto excludes = [&](bool is_set, const char* section, const char* name,
                            const char* remedy) {
    if (is_set)
      mistakes.push_back(text(deck.cite("parallel", "strategy"), " cannot be combined with ",
                              deck.cite(section, name), "; choose ", remedy,
                              ", or strategy = \"all_reduce\""));
  };
  excludes(p.layout == LayoutMode::automatic, "parallel", "layout", "layout = \"given\"");
  excludes(p.shard != Sharding::none, "parallel", "shard", "shard = \"none\"");
  excludes(p.overlaps_steps(), "parallel", "schedule", "schedule = \"1f1b\"");
  excludes(p.context > 1, "parallel", "context", "context = 1");
  excludes(p.vocabulary != VocabularyPlacement::stage, "parallel", "vocabulary",
           "vocabulary = \"stage\"");
  excludes(p.offload == Offload::optimizer || p.offload == Offload::both, "parallel", "offload",
           "offload = \"none\" or \"activations\"");
  excludes(c.model.shared_layers > 0, "model", "shared_layers", "shared_layers = 0");
  excludes(c.precision.products == Products::fp8, "precision", "products",
           "products = \"compute\"");
  excludes(c.optimizer.kind == OptimizerKind::muon, "optimizer", "kind", "kind = \"adamw\"");
  excludes(c.run.audit_every > 0, "run", "audit_every", "audit_every = 0");
  excludes(c.run.timeline, "run", "timeline", "timeline = false");
  excludes(c.run.gradient_noise_scale, "run", "gradient_noise_scale",
           "gradient_noise_scale = false");
  excludes(c.checkpoint.local_every > 0, "checkpoint", "local_every", "local_every = 0");
  // Gradients of one update may then have different factors.
  if (p.records_events() && c.precision.compute == DType::fp16 &&
      c.precision.loss_scale_interval > 0)
    mistakes.push_back(text(deck.cite("parallel", p.staleness > 0 ? "staleness" : "updates"),
                            " needs a constant loss scale, but ",
                            deck.cite("precision", "loss_scale_interval"),
                            " changes it; choose loss_scale_interval = 0, or compute = \"bf16\""));
  if (!p.replay.empty() && !p.records_events())
    mistakes.push_back(text(deck.cite("parallel", "replay"), " has no effect with ",
                            deck.cite("parallel", "staleness"), " and ",
                            deck.cite("parallel", "updates"),
                            ", because every run then has the same order; leave replay out"));
  return mistakes;
}

void resolve_server_axes(Deck& deck, std::int64_t ranks) {
  ParallelConfig& p = deck.config.parallel;
  const std::int64_t model_ranks = p.model_ranks();
  const std::string factors =
      text(deck.cite("parallel", "pipeline"), " · ", deck.cite("parallel", "tensor"));
  if (p.data == 0) {
    const std::int64_t places = ranks / model_ranks;
    const std::int64_t least = model_ranks * (p.servers + 1);
    check_usage(places > p.servers, deck.cite("parallel", "servers"), " and one worker, with ",
                factors, ", need ", least, " ranks, but the run has ", ranks_text(ranks),
                "; start at least ", least, " ranks (mpiexec -n ", least,
                " trireme ...), or choose fewer servers");
    check_usage(ranks % model_ranks == 0, factors, " = ", model_ranks, " does not divide the ",
                "run's ", ranks_text(ranks), "; start ", places * model_ranks, " or ",
                (places + 1) * model_ranks, " ranks");
    p.data = places - p.servers;
    deck.places["parallel.data"] = from_ranks;
    return;
  }
  const std::int64_t all = model_ranks * (p.data + p.servers);
  check_usage(all == ranks, factors, " · (", deck.cite("parallel", "data"), " workers + ",
              deck.cite("parallel", "servers"), ") = ", all, ", but the run has ",
              ranks_text(ranks), "; start ", ranks_text(all),
              ranks % model_ranks == 0 && ranks / model_ranks > p.servers
                  ? text(", or choose data = ", ranks / model_ranks - p.servers)
                  : "");
}

}  // namespace trireme::deck
