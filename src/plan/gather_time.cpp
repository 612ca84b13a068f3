// Waiting time for weights that replicas divide. The next layer is gathered while a layer is
// computed; the first layers of a pass may still be in their windows.
#include <trireme/plan/gather_time.hpp>

#include <trireme/plan/choices.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/schedule/repetition.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

using architecture::Collective;

/// Number of windows that layers use in turn.
constexpr std::int64_t windows = 2;

class Gathers {
 public:
  Gathers(StepCosts& costs, const deck::Config& config,
          const architecture::Architecture& architecture, const BlockTimes& parts,
          const StageSizes& sizes, const std::vector<Seconds>& sums, double element, double turns,
          const NetworkTime& network, const Machine& machine)
      : costs_(costs),
        architecture_(architecture),
        parallel_(config.parallel),
        map_(config.parallel.stage_map()),
        parts_(parts),
        sizes_(sizes),
        sums_(sums),
        tied_(config.model.tied_embeddings),
        micro_batches_(config.micro_batches()),
        element_(element),
        turns_(turns),
        network_(network),
        sum_overlap_(machine.software.gradient_overlap),
        sums_each_pass_(machine.software.sums_each_pass),
        hidden_(transport(config.parallel, machine) == schedule::Transport::ordered_groups
                    ? machine.software.gather_overlap
                    : 0) {}

  /// Adds to each pass the time that it waits for layers that are not in the windows.
  void passes() {
    for (Rank rank = 0; rank < map_.ranks; ++rank) {
      std::int64_t of_rank = 0;
      for (int chunk = 0; chunk < map_.chunks; ++chunk) of_rank += layers(stage(rank, chunk));
      const bool both = map_.rank_of(0) == rank && map_.rank_of(map_.last_stage()) == rank;
      const Refills refills = refills_of(parallel_, rank, of_rank, micro_batches_);
      for (int chunk = 0; chunk < map_.chunks; ++chunk)
        add_passes(stage(rank, chunk), refills, of_rank, both);
    }
  }

  /// Sets the waiting time for gathers after an update: of all trained weights if `all`, otherwise
  /// only of the tables of a shared vocabulary.
  void updates(bool all) {
    std::vector<Seconds> begin(costs_.stages.size());
    for (std::size_t s = 1; s < begin.size(); ++s)
      begin[s] = begin[s - 1] + costs_.stages[s - 1].forward.total() + costs_.activations[s - 1];
    for (Rank rank = 0; rank < map_.ranks; ++rank)
      costs_.gathers[static_cast<std::size_t>(rank)] = new_weights(rank, all, begin);
  }

 private:
  std::size_t stage(Rank rank, int chunk) const {
    return static_cast<std::size_t>(map_.stage_of(rank, chunk));
  }
  std::int64_t layers(std::size_t s) const { return sizes_.layers[s].extent; }
  /// Mean times of a layer in the range `layers`.
  BlockTime mean_layer(const layout::Slice& layers) const {
    const std::vector<std::int64_t> counts = architecture_.count_kinds(layers);
    BlockTime mean;
    for (std::size_t k = 0; k < counts.size() && layers.extent > 0; ++k)
      mean +=
          parts_.layers[k] * (static_cast<double>(counts[k]) / static_cast<double>(layers.extent));
    return mean;
  }
  bool is_last(std::size_t s) const { return s + 1 == sizes_.layers.size(); }
  Seconds gather(double parameters) const {
    return parameters > 0 ? network_.among_shards(Collective::all_gather, parameters * element_)
                          : 0;
  }
  Seconds gather_experts(double parameters) const {
    return parameters > 0
               ? network_.among_expert_shards(Collective::all_gather, parameters * element_)
               : 0;
  }
  /// Time of a pass that can hide gathers: kernels, and waiting for the host. Messages of the
  /// tensor axis cannot hide gathers, because both may use the same links.
  Seconds kernels(const PassTime& pass) const { return (pass.compute + pass.host) * turns_; }
  Seconds shown(Seconds gather, Seconds cover) const {
    return gather - hidden_ * std::min(gather, std::max(0.0, cover));
  }

  /// Waiting time of all passes through `n` layers in a step. `fresh` passes find none of their
  /// layers in the windows. `before` is the time that can hide the first gather of such a pass;
  /// `cover` is the time of one layer, which can hide any of the other gathers.
  Seconds of_layers(std::int64_t n, double fresh, Seconds gather, Seconds cover,
                    Seconds before) const {
    if (n == 0) return 0;
    const auto m = static_cast<double>(micro_batches_);
    const auto others = static_cast<double>(n - std::min(windows, n));
    return fresh * (shown(gather, before) + static_cast<double>(n - 1) * shown(gather, cover)) +
           (m - fresh) * others * shown(gather, cover);
  }

  /// Adds waiting time to the passes of stage `s`. `of_rank`: number of layers of the stage's rank;
  /// `both`: whether this rank has the embedding and the head.
  void add_passes(std::size_t s, Refills refills, std::int64_t of_rank, bool both) {
    BlockTime& stage = costs_.stages[s];
    const auto m = static_cast<double>(micro_batches_);
    const std::int64_t n = layers(s);
    const std::int64_t backward =
        sizes_.layers[s].end() - architecture_.first_with_backward(sizes_.layers[s]);
    if (backward < n && of_rank > windows) refills.forward = m;  // windows hold later layers
    const double ends = (s == 0 ? sizes_.embedding : 0) + (is_last(s) ? sizes_.head : 0);
    const auto with_frozen = [s](const std::vector<double>& trained,
                                 const std::vector<double>& frozen) {
      return trained[s] + (frozen.empty() ? 0 : frozen[s]);
    };
    const double parameters = with_frozen(sizes_.parameters, sizes_.frozen);
    // Experts that replicas divide are gathered among the ranks with the same experts.
    const double experts = with_frozen(sizes_.experts, sizes_.frozen_experts);
    const Seconds each =
        n > 0 ? gather((parameters - ends - sizes_.tables - experts) / static_cast<double>(n)) +
                    gather_experts(experts / static_cast<double>(n))
              : 0;
    const Seconds forward = kernels(mean_layer(sizes_.layers[s]).forward);
    Seconds waits = of_layers(n, refills.forward, each, forward,
                              s == 0 ? kernels(parts_.embedding.forward) : 0);
    // Embedding and head take turns in a window, unless they are tied or on different ranks.
    const bool one = both && tied_;
    const double times = both && !tied_ ? m : 1;
    if (s == 0) waits += times * gather(sizes_.embedding + (one ? sizes_.head : 0));
    if (is_last(s) && !one) waits += times * shown(gather(sizes_.head), n > 0 ? forward : 0);
    stage.forward.data += waits / m;
    add_backward(stage, s, backward, refills.backward, each);
  }

  /// Adds waiting time to the backward passes through the last `n` layers of stage `s`. In the last
  /// backward pass, or in all of them, sums of gradients use the same links.
  void add_backward(BlockTime& stage, std::size_t s, std::int64_t n, double fresh, Seconds each) {
    if (n == 0) return;
    const BlockTime layer = mean_layer({sizes_.layers[s].end() - n, n});
    const auto m = static_cast<double>(micro_batches_);
    const double with_sum = sums_each_pass_ ? m : 1;
    const Seconds sum = sum_overlap_ * sums_[s] / static_cast<double>(n);
    const Seconds head = is_last(s) ? kernels(parts_.head.backward) : 0;
    const Seconds head_input = is_last(s) ? kernels(parts_.head.backward_input) : 0;
    const auto add = [&](PassTime& pass, const PassTime& of_layer, double times, Seconds before) {
      const Seconds cover = kernels(of_layer);
      pass.data += (of_layers(n, times, each, cover, before) * (m - with_sum) +
                    of_layers(n, times, each, cover - sum, before) * with_sum) /
                   (m * m);
    };
    add(stage.backward, layer.backward, fresh, head);
    add(stage.backward_input, layer.backward_input, fresh, head_input);
    if (parts_.weight_half_reads) add(stage.backward_weight, layer.backward_weight, m, 0);
  }

  /// Time that the next step's first passes on one rank wait for updated weights.
  Seconds new_weights(Rank rank, bool all, const std::vector<Seconds>& begin) const {
    Seconds arrived = 0, late = 0;
    for (int chunk = 0; chunk < map_.chunks; ++chunk) {
      const std::size_t s = stage(rank, chunk);
      const double parameters = all ? sizes_.parameters[s] : sizes_.tables;
      if (parameters <= 0) continue;
      const double experts = all ? sizes_.experts[s] : 0;
      const Seconds whole = gather(parameters - experts) + gather_experts(experts);
      const double unit = s == 0 ? sizes_.embedding + sizes_.tables
                                 : parameters / static_cast<double>(1 + layers(s));
      const Seconds last =
          kernels(is_last(s) ? parts_.head.forward : mean_layer(sizes_.layers[s]).forward);
      late = std::max(late, arrived + whole * std::min(1.0, unit / parameters) - begin[s]);
      arrived += whole;
      late = std::max(late, arrived - (begin[s] + costs_.stages[s].forward.total() - last));
    }
    return arrived - hidden_ * (arrived - std::min(arrived, late));
  }

  StepCosts& costs_;
  const architecture::Architecture& architecture_;
  const deck::ParallelConfig& parallel_;
  layout::StageMap map_;
  const BlockTimes& parts_;
  const StageSizes& sizes_;
  const std::vector<Seconds>& sums_;
  bool tied_;
  std::int64_t micro_batches_;
  double element_;
  double turns_;
  const NetworkTime& network_;
  double sum_overlap_;
  bool sums_each_pass_;
  double hidden_;
};

}  // namespace

/// A pass in the other direction begins at the layers where the previous pass ended; a pass in the
/// same direction finds none of its layers. With three layers, such a pass still finds the second
/// layer in its window, which counts as half of a refill.
Refills refills_of(const deck::ParallelConfig& p, Rank rank, std::int64_t layers,
                   std::int64_t micro_batches) {
  if (layers <= windows) return {1.0 / static_cast<double>(p.chunks), 0};
  const auto m = static_cast<double>(micro_batches);
  if (p.chunks > 1) return {m, m};
  const double share = layers == windows + 1 ? 0.5 : 1;
  const schedule::ProgramLayout layout = passes_of(p, micro_batches);
  const auto kind = estimated_schedule(p.schedule, layout);
  if (!kind) return {m, m};
  const schedule::RowCounts& row =
      schedule::row_counts(*kind, layout)[static_cast<std::size_t>(rank)];
  return {1 + share * row.forward_again, share * row.backward_again};
}

void add_gathers(StepCosts& costs, const deck::Config& config,
                 const architecture::Architecture& architecture, const BlockTimes& parts,
                 const StageSizes& sizes, const std::vector<Seconds>& sums, double element,
                 double turns, const NetworkTime& network, const Machine& machine) {
  if (!config.parallel.divides_state()) return;
  Gathers gathers(costs, config, architecture, parts, sizes, sums, element, turns, network,
                  machine);
  const bool takes_turns =  // shared layers stay whole
      config.parallel.divides_weights() && config.model.shared_layers == 0;
  gathers.updates(!takes_turns);
  if (takes_turns) gathers.passes();
}

}  // namespace trireme::plan
