// Bytes of each arena of a training rank, from its arrays and the program's needs. Sizes equal the
// allocations of model/, optim/ and train/; tests compare them.
#include <trireme/plan/memory.hpp>

#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/fp8.hpp>
#include <trireme/architecture/hidden_matrices.hpp>
#include <trireme/architecture/matrix_axes.hpp>
#include <trireme/architecture/placement.hpp>
#include <trireme/architecture/saved.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/base/alignment.hpp>
#include <trireme/base/reduction.hpp>
#include <trireme/base/text.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/local_training.hpp>
#include <trireme/plan/muon.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/plan/reduction_scratch.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <algorithm>
#include <array>

namespace trireme::plan {

using architecture::MatrixRounds;

namespace {

/// Buckets of a rank's gradients or of all its weights.
architecture::BucketCut buckets_of(const deck::Config& config,
                                   const architecture::Architecture& architecture,
                                   const architecture::Shard& shard,
                                   const std::vector<architecture::RankArray>& arrays,
                                   const architecture::Placement& placement, const Machine& machine,
                                   architecture::CutOf of = architecture::CutOf::gradients) {
  const TypedSizes sizes = typed_sizes(config, shard, machine);
  return {architecture,
          shard,
          arrays,
          placement,
          std::max<std::int64_t>(1, config.parallel.bucket_bytes / sizes.accumulate),
          static_cast<int>(config.parallel.shard_ranks()),
          architecture::division_of(config).by_block(),
          of};
}

bool shares_state(const deck::Config& config) {
  return config.parallel.divides_state();
}

/// Number of values of a worker's progress in checkpoints of local training.
constexpr std::int64_t progress_numbers = 4;

/// Elements of the trained arrays without matrices of `without` that each of `replicas` saves, each
/// part rounded up to a multiple of `unit`.
std::vector<std::int64_t> saved_without(const architecture::Architecture& architecture,
                                        const architecture::Shard& shard,
                                        const std::vector<architecture::RankArray>& arrays,
                                        int replicas, std::int64_t unit, rules::Matrices without) {
  std::vector<std::int64_t> sums;
  for (int r = 0; r < replicas; ++r) {
    std::int64_t& sum = sums.emplace_back();
    for (const auto& part : architecture::saved_parts(architecture, shard, arrays, replicas, r))
      if (const auto& array = arrays[part.local];
          !array.frozen && !rules::as_matrices(without, array.matrix))
        sum += (part.elements() + unit - 1) / unit * unit;
  }
  return sums;
}

}  // namespace

std::int64_t history_steps(const deck::RunConfig& run) {
  return std::min(run.log_every, longest_history) + 2;
}

Bytes history_bytes(const deck::RunConfig& run, std::int64_t terms) {
  return aligned(history_steps(run) * (terms + 1) * 8);
}

std::vector<architecture::BlockProgram> layer_programs(
    const deck::Config& config, const architecture::Architecture& architecture,
    const architecture::Shard& shard, bool split_backward, const Machine& machine) {
  const TypedSizes sizes = typed_sizes(config, shard, machine);
  const std::vector<architecture::Kept> kept = kept_tensors(config.parallel, architecture);
  std::vector<architecture::BlockProgram> programs;
  for (const architecture::BlockDescription& layer : architecture.layer_kinds())
    programs.push_back(architecture::lower(
        layer, sizes,
        {kept[programs.size()], true, split_backward, sizes.element, sizes.accumulate}));
  return programs;
}

Bytes activation_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                       const architecture::Shard& shard, const schedule::Needs& needs,
                       const Machine& machine) {
  return TrainingSizes(config, architecture, machine)
      .activations(activation_parts(config, architecture, shard, needs.split_backward, machine),
                   shard, needs);
}

ArenaSizes arena_parts(const deck::Config& config, const architecture::Architecture& architecture,
                       const architecture::Shard& shard, const Machine& machine) {
  const auto arrays = architecture::rank_arrays(architecture, shard);
  const architecture::Placement elements = architecture::place(architecture, shard, arrays);
  const auto buckets = buckets_of(config, architecture, shard, arrays, elements, machine);
  const ReductionScratch sums = reduction_scratch(config, architecture, shard, buckets, machine);
  const architecture::Division division = architecture::division_of(config);
  constexpr int any = 0;  // all replicas have equal memory
  const rules::Description& rule = config.optimizer.rule();
  const bool muon = rule.has(rules::PassKind::whole_matrices, config.optimizer);
  const bool shares = shares_state(config), apart = rule.matrices != rules::Matrices::none;
  const std::int64_t state = config.parallel.has_servers() ? 0
                             : shares ? architecture::most_state_elements(buckets)
                             : apart  ? architecture::whole_state_elements(arrays)
                                      : elements.trained;
  const std::int64_t others = !apart   ? state
                              : shares ? architecture::most_state_elements(buckets, rule.matrices)
                                       : architecture::whole_state_elements(arrays, rule.matrices);
  const architecture::Factors factors =
      architecture::factors(architecture, arrays, config.optimizer);
  std::int64_t weights = elements.elements;
  if (division.weights)
    weights =
        architecture::arranged_weights(buckets_of(config, architecture, shard, arrays, elements,
                                                  machine, architecture::CutOf::weights),
                                       division, any)
            .elements();
  ArenaSizes parts{weights,
                   architecture::arranged_gradients(buckets, shard, division,
                                                    config.parallel.sequence_parallel, any)
                       .elements(),
                   state,
                   others,
                   factors.rows,
                   factors.columns,
                   muon ? muon_bytes(architecture::matrix_rounds(
                                         architecture, shard, arrays,
                                         static_cast<int>(config.parallel.shard_ranks())),
                                     typed_sizes(config, shard, machine).accumulate)
                        : 0,
                   aligned(factors.sum_bytes()),
                   sums.data + sums.experts + sums.divided + sums.embedding + sums.pipeline +
                       2 * sums.vocabulary + (shard.has_head() ? sums.context : 0),
                   sums.shared};
  add_local(parts, config,
            {division.weights ? weights : elements.trained,
             architecture::fragment_elements(architecture, arrays, config, state)},
            TrainingSizes(config, architecture, machine));
  return parts;
}

std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard,
                                       const schedule::Needs& needs, const Machine& machine) {
  return rows_of(
      TrainingSizes(config, architecture, machine)
          .bytes(activation_parts(config, architecture, shard, needs.split_backward, machine),
                 arena_parts(config, architecture, shard, machine), shard, needs));
}

std::vector<MemoryRow> rows_of(const TrainingBytes& b) {
  std::vector<MemoryRow> rows{{"weights", b.weights}, {"gradients", b.gradients}};
  const auto add = [&rows](const char* what, Bytes bytes, bool on_host = false) {
    if (bytes > 0) rows.push_back({what, bytes, on_host});
  };
  add("weights, second version", b.second_weights);
  add("gradients, second version", b.second_gradients);
  if (!b.optimizer_on_host) rows.push_back({"optimizer state", b.optimizer});
  rows.push_back({"saved activations", b.saved});
  add("logits", b.logits);
  rows.push_back({"transfer buffers", b.transfer});
  rows.push_back({"scratch", b.scratch});
  add("kernel workspace", b.workspace);
  add("two-byte products", b.widened);
  add("fp8 scaling", b.fp8);
  add("reductions", b.reductions);
  add("orthogonalisation", b.muon);
  add("sums of rows and columns", b.means);
  add("local training", b.local);
  add("audits", b.audits);
  add("driver and libraries", b.reserve);
  if (b.optimizer_on_host) rows.push_back({"optimizer state (host)", b.optimizer, true});
  add("local training (host)", b.local_on_host, true);
  add("saved activations (host)", b.saved_on_host, true);
  return rows;
}

bool saves_in_background(const deck::Config& config) {
  const std::int64_t every = config.checkpoint.every;
  return config.checkpoint.asynchronous && every > 0 && every < config.run.steps;
}

int checkpoint_copies(const deck::Config& config) {
  return (saves_in_background(config) ? 1 : 0) +
         (config.checkpoint.local_every > 0 ? local_shares : 0);
}

Bytes checkpoint_copy_bytes(const deck::Config& config,
                            const architecture::Architecture& architecture,
                            const architecture::Shard& shard, const Machine& machine) {
  const int copies = checkpoint_copies(config);
  return copies == 0 ? 0 : copies * share_bytes(config, architecture, shard, machine);
}

Bytes share_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                  const architecture::Shard& shard, const Machine& machine) {
  if (config.parallel.has_servers()) return 0;  // servers write checkpoints: see servers.hpp
  const TypedSizes sizes = typed_sizes(config, shard, machine);
  const auto arrays = architecture::rank_arrays(architecture, shard);
  // With two-byte weights, the master weights are saved instead of the weights.
  const std::int64_t masters = sizes.narrow() ? 1 : 0;
  const bool local = config.parallel.workers > 1;  // shared weights are divided like the state
  const bool owns_weights =
      (architecture::division_of(config).weights || (local && shares_state(config))) &&
      !sizes.narrow();
  const architecture::StateCounts states = architecture::state_counts(config.optimizer);
  const rules::Matrices matrices = config.optimizer.rule().matrices;
  const auto replicas = static_cast<int>(config.parallel.replicas());
  // Every block begins at a page. Without master weights, saved weights have the type of sums.
  const std::int64_t page = architecture::saved_alignment / sizes.accumulate;
  const std::int64_t moment_page = architecture::saved_alignment / sizes.moment;
  // Elements that each replica saves of an array of the state, without matrices of `without`. Only
  // the first group of replicas writes divided state.
  const auto state_sums = [&](std::int64_t unit, rules::Matrices without) {
    std::vector<std::int64_t> sums;
    if (shares_state(config))
      sums = architecture::owned_sums(
          buckets_of(config, architecture, shard, arrays,
                     architecture::place(architecture, shard, arrays), machine),
          unit, true, false, without);
    else if (without == rules::Matrices::none)
      sums = architecture::saved_sums(architecture, shard, arrays, replicas, unit);
    else
      sums = saved_without(architecture, shard, arrays, replicas, unit, without);
    sums.resize(static_cast<std::size_t>(replicas));
    return sums;
  };
  const std::vector<std::int64_t> owned = state_sums(page, rules::Matrices::none);
  const std::vector<std::int64_t> moments =
      page == moment_page ? owned : state_sums(moment_page, rules::Matrices::none);
  std::vector<std::int64_t> others(owned.size());
  if (states.others > 0) others = state_sums(moment_page, matrices);
  std::vector<std::int64_t> saved(owned.size());  // of weights that are not part of the state
  const std::int64_t weights = sizes.narrow() || owns_weights ? 0 : 1;
  if (weights > 0) saved = architecture::saved_sums(architecture, shard, arrays, replicas, page);
  // Replica 0 of tensor rank 0 saves the state of rows and columns.
  Bytes factors = 0;
  if (shard.tensor_rank == 0)
    for (const auto& f : architecture::factors(architecture, arrays, config.optimizer).arrays)
      if (!arrays[f.local].copy)
        factors += architecture::saved_bytes(f.matrices * f.rows * sizes.accumulate) +
                   architecture::saved_bytes(f.matrices * f.columns * sizes.accumulate);
  // Frozen weights are also saved as fp32 or wider.
  std::vector<std::int64_t> frozen;
  if (architecture::division_of(config).weights)
    frozen = architecture::owned_sums(buckets_of(config, architecture, shard, arrays,
                                                 architecture::place(architecture, shard, arrays),
                                                 machine, architecture::CutOf::weights),
                                      page, true, true);
  else
    frozen = architecture::saved_sums(architecture, shard, arrays, replicas, page, true);
  frozen.resize(owned.size());
  // With overlapping steps, the weights before the last update are also saved.
  std::vector<std::int64_t> earlier(owned.size());
  if (config.parallel.overlaps_steps())
    for (const bool of_frozen : {false, true}) {
      const auto sums =
          architecture::saved_sums(architecture, shard, arrays, replicas,
                                   architecture::saved_alignment / sizes.element, of_frozen);
      for (std::size_t r = 0; r < sums.size(); ++r) earlier[r] += sums[r];
    }
  // Local training also saves the weights of each worker in addition to its state, and if the deck
  // has them, the momentum and the mean of outer steps.
  std::int64_t of_workers = 0, workers_here = 1;
  Bytes progress = 0;
  if (local) {
    workers_here = config.parallel.workers_per_rank();
    of_workers =
        workers_here + (config.local.outer_momentum > 0 ? 1 : 0) + (config.local.delay > 0 ? 1 : 0);
    progress = architecture::saved_bytes(workers_here * progress_numbers * 8);
  }
  // Replica 0 of tensor rank 0 of the first stage also saves fp8 maxima.
  const bool saves_maxima =
      config.precision.products == Products::fp8 && shard.has_embedding() && shard.tensor_rank == 0;
  Bytes most = 0;
  const auto apart = static_cast<std::size_t>(shard.expert_size);
  // Every `apart`-th replica has this shard's experts.
  for (auto r = static_cast<std::size_t>(shard.expert_rank); r < owned.size(); r += apart) {
    const Bytes maxima = saves_maxima && r == 0
                             ? architecture::saved_bytes(architecture::fp8_tensors(architecture) *
                                                         config.precision.fp8_history * 4)
                             : 0;
    const Bytes wide =
        weights * saved[r] + frozen[r] + (masters + (owns_weights ? 1 : 0) + of_workers) * owned[r];
    const Bytes of_moments = states.all * moments[r] + states.others * others[r];
    most =
        std::max(most, wide * sizes.accumulate + workers_here * of_moments * sizes.moment +
                           (r == 0 ? factors : 0) + earlier[r] * sizes.element + progress + maxima);
  }
  return most;
}

Bytes reduction_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                      const architecture::Shard& shard, const Machine& machine) {
  const std::int64_t replicas = config.parallel.replicas();
  if (config.parallel.has_servers()) return 0;
  if (replicas == 1 || transport(config.parallel, machine) == schedule::Transport::ordered_groups)
    return 0;
  const auto arrays = architecture::rank_arrays(architecture, shard);
  const auto placement = architecture::place(architecture, shard, arrays);
  const Bytes element = typed_sizes(config, shard, machine).accumulate;
  const auto buckets = buckets_of(config, architecture, shard, arrays, placement, machine);
  const auto places = architecture::arranged_gradients(
      buckets, shard, architecture::division_of(config), config.parallel.sequence_parallel, 0);
  Bytes bytes = 0;
  std::vector<Bytes> units(places.units().size());  // bytes of units that use a window in turn
  buckets.visit([&](const architecture::BucketRun& run) {
    const std::int64_t ranks = replicas / run.expert_ranks;
    const Bytes part = (run.size() * element + ranks - 1) / ranks;
    const auto* turn = places.run_of(run.begin);
    Bytes& sum =
        turn != nullptr && turn->takes_turns ? units[static_cast<std::size_t>(turn->unit)] : bytes;
    sum += run.count * std::min(part, reduction_segment_bytes) * (ranks - 1);
  });
  // In each window, the sums of only one unit are in flight at a time.
  std::array<Bytes, architecture::WindowTurns::windows> most{};
  for (std::size_t u = 0; u < units.size(); ++u)
    if (const int window = places.units()[u].window; window >= 0)
      most[static_cast<std::size_t>(window)] =
          std::max(most[static_cast<std::size_t>(window)], units[u]);
  for (const Bytes window : most) bytes += window;
  return bytes;
}

Bytes process_bytes(const deck::Config& config) {
  constexpr Bytes program = Bytes{43} << 20;
  constexpr Bytes packed_blocks = Bytes{8} << 20;  // packed operands of oneDNN's products
  constexpr Bytes watchdog = Bytes{4} << 20;       // page tables of HeadStart (grid/watchdog.hpp)
  constexpr Bytes cells = Bytes{4} << 20;  // MPI's shared-memory cells, filled by sums of gradients
  return program + (config.precision.compute == DType::fp64 ? 0 : packed_blocks) +
         (config.run.watchdog > 0 ? watchdog : 0) +
         (config.parallel.data * config.parallel.context > 1 ? cells : 0);
}

Bytes total(const std::vector<MemoryRow>& rows) {
  Bytes sum = 0;
  for (const MemoryRow& row : rows) sum += row.bytes;
  return sum;
}

Bytes device_total(const std::vector<MemoryRow>& rows) {
  Bytes sum = 0;
  for (const MemoryRow& row : rows) sum += row.on_host ? 0 : row.bytes;
  return sum;
}

std::string table(const std::vector<MemoryRow>& rows, Bytes checkpoint_copy) {
  std::string out;
  const auto add = [&out](const std::string& what, Bytes bytes) {
    const std::string amount = human_bytes(bytes);
    out += "  " + what + std::string(what.size() < 26 ? 26 - what.size() : 1, ' ');
    out += std::string(amount.size() < 10 ? 10 - amount.size() : 0, ' ') + amount + "\n";
  };
  for (const MemoryRow& row : rows)
    if (!row.on_host) add(row.what, row.bytes);
  add("sum", device_total(rows));
  for (const MemoryRow& row : rows)
    if (row.on_host) add(row.what, row.bytes);
  if (checkpoint_copy > 0) add("checkpoint copy (host)", checkpoint_copy);
  out.pop_back();
  return out;
}

}  // namespace trireme::plan
