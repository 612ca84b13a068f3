// recompute = "auto": a greedy search over the tensors of a layer. Times of recomputation are in
// units of the time to move one byte of memory.
#include <trireme/plan/recompute.hpp>

#include <trireme/architecture/ends.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <algorithm>
#include <limits>

namespace trireme::plan {
namespace {

using architecture::BlockDescription;
using architecture::Kept;

/// FLOPs in the time to move one byte: an H100 computes 990e12 in bf16 per second and moves 3.35e12
/// bytes (NVIDIA's data sheet); a server's core computes about 130e9 in fp32 and moves 10e9 bytes.
double flops_per_byte(const Machine& machine) {
  return machine.on_device() ? 300 : 13;
}
/// Number of bytes that memory moves while a link between ranks moves one byte.
constexpr double link_slowness = 8;

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

Kept kept_of(const deck::ParallelConfig& parallel, const BlockDescription& layer) {
  if (parallel.recompute != Recompute::automatic)
    return architecture::kept_tensors(layer, parallel.recompute);
  Kept kept = architecture::kept_tensors(layer, Recompute::none);
  for (std::size_t t = 1; t < kept.size(); ++t)
    if (!architecture::is_always_kept(layer, static_cast<int>(t)) &&
        std::ranges::find(parallel.recomputed, layer.tensors[t].name) != parallel.recomputed.end())
      kept[t] = false;
  return kept;
}

/// Searches for the tensors to recompute.
class RecomputeSearch {
 public:
  RecomputeSearch(deck::Deck& deck, const Machine& machine)
      : deck_(deck), machine_(machine), architecture_(architecture::describe(deck.config.model)) {
    const deck::Config& c = deck.config;
    const auto needs = training_needs(step_programs(c, machine));
    set({});
    for (const RankPlan& rank : plan_ranks(c, architecture_, needs, machine)) {
      if (rank.repeats) continue;
      const auto shard =
          architecture::make_shard(architecture_, c.parallel, rank.pipeline, rank.tensor);
      const Bytes activations = activation_bytes(c, architecture_, shard, rank.needs, machine);
      ranks_.push_back({shard, rank.needs, counted(rank) - activations});
    }
  }

  void run() {
    const Bytes limit =
        limit_is_given() ? deck_.config.parallel.memory_limit : machine_.device.memory;
    check_usage(limit > 0, deck_.cite("parallel", "recompute"),
                " needs memory_limit; give the bytes that a rank may use, such as memory_limit = "
                "75_000_000_000");
    std::vector<std::string> chosen;
    double time = 0;
    for (Bytes bytes = bytes_with(chosen); bytes > limit;) {
      const auto [name, next_time, next_bytes] = cheapest(chosen, time, bytes);
      check_usage(!name.empty(),
                  limit_is_given() ? deck_.cite("parallel", "memory_limit")
                                   : text("[device] memory in ", machine_.file),
                  " (", human_bytes(limit), ") is too small: a rank needs ", human_bytes(bytes),
                  " even if everything but the layers' inputs is computed again; choose a smaller "
                  "batch.micro, more tensor or pipeline ranks, or shard = \"optimizer\"");
      chosen.push_back(name);
      time = next_time;
      bytes = next_bytes;
    }
    set(chosen);
  }

 private:
  struct Rank {
    architecture::Shard shard;
    schedule::Needs needs;
    Bytes fixed = 0;  ///< independent of the choice
  };
  struct Candidate {
    std::string name;
    double time = 0;
    Bytes bytes = 0;
  };

  bool limit_is_given() const { return deck_.config.parallel.memory_limit > 0; }

  /// Bytes of a rank to which the limit applies; on a host without memory_limit, the whole process.
  Bytes counted(const RankPlan& rank) const {
    return limit_is_given() || machine_.on_device() ? device_total(rank.memory) : rank.peak();
  }

  void set(std::vector<std::string> recomputed) {
    deck_.config.parallel.recomputed = std::move(recomputed);
  }

  /// Sets the recomputed tensors, and returns the bytes of the rank that needs the most.
  Bytes bytes_with(const std::vector<std::string>& recomputed) {
    set(recomputed);
    Bytes most = 0;
    for (const Rank& rank : ranks_)
      most = std::max(most, rank.fixed + activation_bytes(deck_.config, architecture_, rank.shard,
                                                          rank.needs, machine_));
    return most;
  }

  /// Sets the recomputed tensors, and returns the mean time per layer to recompute them, and the
  /// logits if necessary, for one micro-batch on the first rank.
  double time_with(const std::vector<std::string>& recomputed) {
    set(recomputed);
    const Rank& rank = ranks_.front();
    const TypedSizes sizes = typed_sizes(deck_.config, rank.shard, machine_);
    const auto programs = layer_programs(deck_.config, architecture_, rank.shard,
                                         rank.needs.split_backward, machine_);
    const std::int64_t layers = architecture_.model.all_layers();
    const std::vector<std::int64_t> counts = architecture_.count_kinds({0, layers});
    double time = 0;
    for (std::size_t k = 0; k < programs.size(); ++k)
      time += static_cast<double>(counts[k]) / static_cast<double>(layers) *
              time_again(architecture_.layer_kinds()[k], programs[k], sizes);
    if (architecture::computes_again(head_gradient())) time += time_of_logits(sizes);
    return time;
  }

  double time_again(const BlockDescription& layer, const architecture::BlockProgram& program,
                    const TypedSizes& sizes) const {
    double time = 0;
    for (const auto* phase : {&program.backward, &program.backward_input, &program.backward_weight})
      for (const architecture::OperationCall& call : phase->calls)
        if (call.again)
          for (const int operation : {call.operation, call.fused})
            if (operation >= 0) time += time_of(layer, operation, sizes);
    return time;
  }

  architecture::HeadGradient head_gradient() const {
    return architecture::head_gradient(deck_.config.parallel);
  }

  /// Time to recompute the logits, divided by the mean number of layers per pipeline rank.
  double time_of_logits(const TypedSizes& sizes) const {
    const deck::ParallelConfig& p = deck_.config.parallel;
    const auto logits = static_cast<double>(sizes.targets * sizes.vocabulary);
    const double flops = 2 * architecture_.logit_products() * static_cast<double>(sizes.tokens) /
                         static_cast<double>(p.tensor);
    return (flops / flops_per_byte(machine_) + 2 * logits * static_cast<double>(sizes.accumulate)) *
           static_cast<double>(p.pipeline) / static_cast<double>(deck_.config.model.all_layers());
  }

  /// Tensors that are kept if nothing is recomputed: tensors of the layers, and the logits'
  /// gradient.
  std::vector<std::string> kept_names() const {
    std::vector<std::string> names;
    for (const BlockDescription& layer : architecture_.layer_kinds()) {
      const Kept needed = architecture::kept_tensors(layer, Recompute::none);
      for (std::size_t t = 1; t < needed.size(); ++t)
        if (needed[t]) add_once(names, layer.tensors[t].name);
    }
    if (head_gradient() != architecture::HeadGradient::with_losses)
      names.emplace_back(architecture::logits_name);
    return names;
  }

  double time_of(const BlockDescription& layer, int number, const TypedSizes& sizes) const {
    const architecture::Operation& op = layer.operations[static_cast<std::size_t>(number)];
    const auto bytes_of = [&](const std::vector<int>& tensors) {
      double bytes = 0;
      for (const int t : tensors) {
        const architecture::Tensor& tensor = layer.tensors[static_cast<std::size_t>(t)];
        bytes += static_cast<double>(rows_of(tensor.rows, sizes.of(layer.stream)) *
                                     columns_of(tensor.columns, sizes) * sizes.element);
      }
      return bytes;
    };
    const bool sends =
        deck_.config.parallel.tensor > 1 &&
        message_of(op, architecture::Pass::forward, layer.tensors, sizes.cuts_tokens).has_value();
    const double flops = 2 * products_per_token(layer, op, architecture_.model) *
                         static_cast<double>(sizes.tokens) /
                         static_cast<double>(deck_.config.parallel.tensor);
    return flops / flops_per_byte(machine_) +
           bytes_of(tensors_read(op, architecture::Pass::forward)) + bytes_of(tensors_written(op)) +
           link_slowness * (sends ? 1 : 0) *
               static_cast<double>(sizes.tokens * sizes.hidden * sizes.element);
  }

  /// The next tensor to recompute; its name is empty if no tensor saves memory.
  Candidate cheapest(const std::vector<std::string>& chosen, double time, Bytes bytes) {
    Candidate best{"", 0, bytes};
    double lowest = std::numeric_limits<double>::infinity();
    for (const std::string& name : kept_names()) {
      if (std::ranges::find(chosen, name) != chosen.end()) continue;
      std::vector<std::string> next = chosen;
      next.push_back(name);
      const Bytes with = bytes_with(next);
      if (with >= bytes) continue;
      const double seconds = time_with(next);
      const double per_byte = (seconds - time) / static_cast<double>(bytes - with);
      if (per_byte < lowest) best = {name, seconds, with};
      lowest = std::min(lowest, per_byte);
    }
    return best;
  }

  deck::Deck& deck_;
  const Machine& machine_;
  architecture::Architecture architecture_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::vector<Kept> kept_tensors(const deck::ParallelConfig& parallel,
                               const architecture::Architecture& architecture) {
  std::vector<Kept> kept;
  for (const BlockDescription& layer : architecture.layer_kinds())
    kept.push_back(architecture.has_backward(kept.size())
                       ? kept_of(parallel, layer)
                       : architecture::kept_for_evaluation(layer));
  return kept;
}

void resolve_recompute(deck::Deck& deck, const Machine& machine) {
  if (deck.config.parallel.recompute == Recompute::automatic) RecomputeSearch(deck, machine).run();
}

std::string recomputed_text(const deck::ParallelConfig& parallel,
                            const architecture::Architecture& architecture) {
  std::vector<std::string> names;
  for (const BlockDescription& layer : architecture.layer_kinds()) {
    const Kept needed = architecture::kept_tensors(layer, Recompute::none);
    const Kept kept = kept_of(parallel, layer);
    for (std::size_t t = 0; t < kept.size(); ++t)
      if (needed[t] && !kept[t]) add_once(names, layer.tensors[t].name);
  }
  if (architecture::computes_again(architecture::head_gradient(parallel)))
    names.emplace_back(architecture::logits_name);
  return join(names, ", ");
}

}  // namespace trireme::plan
