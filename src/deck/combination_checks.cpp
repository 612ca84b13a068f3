#include <trireme/deck/combination_checks.hpp>

#include <trireme/base/text.hpp>

namespace trireme::deck {

std::vector<std::string> overlap_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  std::vector<std::string> mistakes;
  if (!c.parallel.overlaps_steps()) return mistakes;
  const auto excludes = [&](const char* section, const char* name, const char* remedy) {
    mistakes.push_back(text(deck.cite("parallel", "schedule"), " cannot be combined with ",
                            deck.cite(section, name), "; choose schedule = \"1f1b\", or ", remedy));
  };
  if (c.precision.products == Products::fp8)
    excludes("precision", "products", "products = \"compute\"");
  if (c.parallel.offload != Offload::none) excludes("parallel", "offload", "offload = \"none\"");
  if (c.model.shared_layers > 0) excludes("model", "shared_layers", "shared_layers = 0");
  if (c.run.audit_every > 0) excludes("run", "audit_every", "audit_every = 0");
  if (c.parallel.shard == Sharding::weights) excludes("parallel", "shard", "shard = \"gradients\"");
  return mistakes;
}

std::vector<std::string> sharding_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  if (c.run.audit_every == 0 || c.parallel.shard < Sharding::gradients) return {};
  return {text(deck.cite("run", "audit_every"), " cannot be combined with ",
               deck.cite("parallel", "shard"),
               ", because audits compare whole weights and gradients; choose shard = "
               "\"optimizer\" or audit_every = 0")};
}

std::vector<std::string> noise_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  std::vector<std::string> mistakes;
  if (!c.run.gradient_noise_scale) return mistakes;
  const auto excludes = [&](const char* section, const char* name, const char* remedy) {
    mistakes.push_back(text(deck.cite("run", "gradient_noise_scale"), " cannot be combined with ",
                            deck.cite(section, name), "; choose ", remedy,
                            " or gradient_noise_scale = false"));
  };
  if (c.parallel.context > 1) excludes("parallel", "context", "context = 1");
  if (c.parallel.overlaps_steps()) excludes("parallel", "schedule", "schedule = \"1f1b\"");
  if (c.model.shared_layers > 0) excludes("model", "shared_layers", "shared_layers = 0");
  if (c.run.audit_every > 0) excludes("run", "audit_every", "audit_every = 0");
  const std::int64_t least = c.batch.ramp_start > 0 ? c.batch.ramp_start : c.batch.global;
  if (c.batch.micro > 0 && least <= c.batch.micro)
    mistakes.push_back(text(deck.cite("run", "gradient_noise_scale"),
                            " compares micro-batches with batches of several, but a batch of ",
                            least, " samples is one of ", deck.cite("batch", "micro"),
                            "; choose a smaller micro or a larger batch"));
  return mistakes;
}

std::vector<std::string> local_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  const LocalConfig& l = c.local;
  std::vector<std::string> mistakes;
  if (c.parallel.workers == 1) return mistakes;
  const auto excludes = [&](const char* section, const char* name, const char* remedy) {
    mistakes.push_back(text(deck.cite("local", "workers"), " cannot be combined with ",
                            deck.cite(section, name), "; choose ", remedy, ", or workers = 1"));
  };
  if (c.parallel.overlaps_steps()) excludes("parallel", "schedule", "schedule = \"1f1b\"");
  if (c.parallel.has_servers()) excludes("parallel", "strategy", "strategy = \"all_reduce\"");
  if (c.parallel.layout == LayoutMode::automatic)
    excludes("parallel", "layout", "layout = \"given\"");
  if (c.precision.products == Products::fp8)
    excludes("precision", "products", "products = \"compute\"");
  if (c.run.audit_every > 0) excludes("run", "audit_every", "audit_every = 0");
  if (c.run.gradient_noise_scale)
    excludes("run", "gradient_noise_scale", "gradient_noise_scale = false");
  // Their parts must be the same after every step.
  if (c.checkpoint.local_every > 0) excludes("checkpoint", "local_every", "local_every = 0");
  if (l.fragments > l.inner_steps)
    mistakes.push_back(text(deck.cite("local", "fragments"), " is larger than ",
                            deck.cite("local", "inner_steps"), "; choose at most ", l.inner_steps,
                            " fragments"));
  else if (const std::int64_t apart = l.inner_steps / l.fragments; l.delay > apart)
    mistakes.push_back(
        text(deck.cite("local", "delay"), " is larger than ", deck.cite("local", "inner_steps"),
             " / ", deck.cite("local", "fragments"), " = ", apart,
             ", the steps between two fragments; choose a delay of at most ", apart));
  return mistakes;
}

}  // namespace trireme::deck
