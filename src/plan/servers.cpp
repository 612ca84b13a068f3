// Bytes of the arenas and messages of a server, from the key ranges that train/ uses.
#include <trireme/plan/servers.hpp>

#include <trireme/architecture/placement.hpp>
#include <trireme/architecture/saved.hpp>
#include <trireme/architecture/server_ranges.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/base/alignment.hpp>
#include <trireme/base/text.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <algorithm>
#include <utility>

namespace trireme::plan {
namespace {

using architecture::BucketRun;

/// The arrays of a rank, and the division of these arrays among servers.
struct Ranges {
  Ranges(const deck::Config& config, const architecture::Architecture& model,
         const architecture::Shard& of, const Machine& machine)
      : architecture(model),
        shard(of),
        parallel(config.parallel),
        sizes(typed_sizes(config, of, machine)),
        arrays(architecture::rank_arrays(model, of)),
        placement(architecture::place(model, of, arrays)),
        cut(architecture::server_cut(parallel, model, of, arrays, placement, sizes.accumulate)) {}

  bool divided() const { return parallel.servers > 1; }

  const architecture::Architecture& architecture;
  const architecture::Shard& shard;
  const deck::ParallelConfig& parallel;
  TypedSizes sizes;
  std::vector<architecture::RankArray> arrays;
  architecture::Placement placement;
  architecture::BucketCut cut;
};

architecture::BucketCut weight_cut(const Ranges& r) {
  return {r.architecture,
          r.shard,
          r.arrays,
          r.placement,
          std::max<std::int64_t>(1, r.parallel.bucket_bytes / r.sizes.accumulate),
          static_cast<int>(r.parallel.servers),
          true,
          architecture::CutOf::weights};
}

/// Calls `use(count, elements, of_weights)` for each part of a run of buckets that server `server`
/// holds, or for the parts of all servers if `server` is −1. `of_weights`: whether the run has
/// weights.
template <class F>
void visit_ranges(const Ranges& r, int server, F use) {
  r.cut.visit([&](const BucketRun& run) {
    architecture::visit_parts(run, [&](int owner, std::int64_t begin, std::int64_t end) {
      if (server < 0 || owner == server)
        use(run.count, end - begin, run.begin < r.placement.trained);
    });
  });
}

/// Calls `add` for the sums of gradients over the tensor axis, of arrays that all tensor ranks hold
/// whole. Servers compute these sums instead of workers.
template <class F>
void replicated_sums(const deck::Config& config, const Ranges& r, F add) {
  for (const bool partial : {false, true}) {
    std::int64_t operations = 0, elements = 0;
    for (const Stage stage : r.shard.stages) {
      const layout::Slice run =
          architecture::replicated_part(r.arrays, r.placement, stage, partial);
      if (run.extent == 0 || (!partial && !r.sizes.cuts_tokens)) continue;
      ++operations;
      elements += run.extent;
    }
    add("tensor",
        !partial                         ? "norms and biases: all-reduce"
        : config.model.adapter.present() ? "adapters: all-reduce"
                                         : "norms of heads: all-reduce",
        r.parallel.tensor, operations, elements * r.sizes.accumulate);
  }
}

/// Calls `add` for the all-reduce of a tied token table's gradient between the first and the last
/// stage, in the ranges of server `server`.
template <class F>
void tied_sum(const Ranges& r, int server, F add) {
  const architecture::Shard& shard = r.shard;
  if (!r.architecture.model.tied_embeddings || shard.has_embedding() == shard.has_head()) return;
  const auto places =
      architecture::arranged_gradients(r.cut, shard, architecture::server_division(r.parallel),
                                       r.parallel.sequence_parallel, server);
  for (std::size_t i = 0; i < r.arrays.size(); ++i) {
    const auto number = static_cast<std::size_t>(r.arrays[i].number);
    if (r.architecture.arrays[number].name != "embedding.token" || r.arrays[i].frozen) continue;
    const std::int64_t begin = r.placement.offset[i];
    std::int64_t operations = 0, elements = 0;
    for (const auto& own : places.kept(begin, begin + r.arrays[i].elements())) {
      ++operations;
      elements += own.end - own.begin;
    }
    add("tied", "token table's gradient: all-reduce", 2, operations, elements * r.sizes.accumulate);
  }
}

std::int64_t norm_blocks(const Ranges& r) {
  std::int64_t blocks = 0;
  for (const architecture::RankArray& array : r.arrays)
    for (const architecture::Piece& piece : array.pieces)
      if (piece.counted && !array.frozen)
        blocks += (piece.elements() + norm_block - 1) / norm_block;
  return blocks;
}

}  // namespace

std::vector<MemoryRow> server_memory(const deck::Config& config,
                                     const architecture::Architecture& architecture,
                                     const architecture::Shard& shard, const Machine& machine) {
  const Ranges r(config, architecture, shard, machine);
  const architecture::Division division = architecture::server_division(r.parallel);
  constexpr int any = 0;  // all servers have equal memory
  const std::int64_t weights =
      r.divided() ? architecture::arranged_weights(weight_cut(r), division, any).elements()
                  : r.placement.elements;
  const std::int64_t gradients =
      architecture::arranged_gradients(r.cut, shard, division, r.parallel.sequence_parallel, any)
          .elements();
  const std::int64_t state =
      r.divided() ? architecture::most_state_elements(r.cut) : r.placement.trained;
  const Bytes received = architecture::received_elements(r.cut) * r.sizes.accumulate;
  std::vector<MemoryRow> rows{
      {"weights", weights * r.sizes.element},
      {"gradients", gradients * r.sizes.accumulate},
      {"optimizer state",
       architecture::state_counts(config.optimizer).all * aligned(state * r.sizes.moment) +
           (r.sizes.narrow() ? aligned(state * r.sizes.accumulate) : 0)},
      {"received gradients", architecture::received_gradients(r.parallel) * aligned(received)}};
  if (const Bytes workspace = machine.product_workspace(); workspace > 0)
    rows.push_back({"kernel workspace", workspace});
  return rows;
}

Bytes server_share_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                         const architecture::Shard& shard, const Machine& machine) {
  const Ranges r(config, architecture, shard, machine);
  const auto sums_of = [&](Bytes element, bool frozen) {
    const std::int64_t page = architecture::saved_alignment / element;
    if (r.divided())
      return architecture::owned_sums(frozen ? weight_cut(r) : r.cut, page, true, frozen);
    return architecture::saved_sums(architecture, shard, r.arrays, 1, page, frozen);
  };
  const std::int64_t arrays = architecture::state_counts(config.optimizer).all;
  const auto weights = sums_of(r.sizes.accumulate, false), moments = sums_of(r.sizes.moment, false);
  const auto frozen = sums_of(r.sizes.accumulate, true);
  Bytes most = 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    most = std::max(
        most, (weights[i] + frozen[i]) * r.sizes.accumulate + arrays * moments[i] * r.sizes.moment);
  return most;
}

TrafficRow worker_messages(const deck::Config& config,
                           const architecture::Architecture& architecture,
                           const architecture::Shard& shard, const Machine& machine) {
  const Ranges r(config, architecture, shard, machine);
  TrafficRow gradients{"servers", "gradients: send"};
  visit_ranges(r, -1, [&](std::int64_t count, std::int64_t elements, bool) {
    gradients.operations += count;
    gradients.bytes += count * elements * r.sizes.accumulate;
  });
  return gradients;
}

std::vector<TrafficRow> server_messages(const deck::Config& config,
                                        const architecture::Architecture& architecture,
                                        const architecture::Shard& shard, int server,
                                        const Machine& machine) {
  const Ranges r(config, architecture, shard, machine);
  const std::int64_t workers = r.parallel.data;
  TrafficRow weights{"workers", "weights: send"};
  if (server == 0) {  // the optimizer's status is sent with the weights
    weights.operations = workers;
    weights.bytes = workers * architecture::server_status_bytes;
  }
  visit_ranges(r, server, [&](std::int64_t count, std::int64_t elements, bool of_weights) {
    if (!of_weights) return;
    weights.operations += workers * count;
    weights.bytes += workers * count * elements * r.sizes.element;
  });
  std::vector<TrafficRow> rows{weights};
  const std::int64_t updates = r.parallel.updates == ServerUpdates::push ? workers : 1;
  const auto add = [&](const char* axis, const char* what, std::int64_t ranks,
                       std::int64_t operations, Bytes bytes) {
    if (ranks > 1 && operations > 0)
      rows.push_back({axis, what, updates * operations, updates * bytes});
  };
  replicated_sums(config, r, add);
  const std::int64_t norms = config.optimizer.rule().norms(config.optimizer);
  const std::int64_t servers = r.parallel.servers, blocks = norm_blocks(r);
  add("servers", "gradient norm: all-reduce", servers, 1, blocks * 8);
  if (norms > 0) add("servers", "trust ratios: all-reduce", servers, 1, norms * blocks * 8);
  tied_sum(r, server, add);
  const auto sums = std::ssize(architecture.arrays) * shard.tensor_size;
  const std::int64_t model = r.parallel.pipeline * r.parallel.tensor;
  add("model", "gradient norm: all-reduce", model, 1, sums * 8);
  if (norms > 0) add("model", "trust ratios: all-reduce", model, 1, norms * sums * 8);
  return rows;
}

RankPlan plan_server(const deck::Config& config, const architecture::Architecture& architecture,
                     const Machine& machine) {
  const layout::StageMap stages = config.parallel.stage_map();
  architecture::Shard shard = architecture::make_shard(architecture, config.parallel, 0, 0);
  RankPlan most;
  for (int p = 0; p < stages.ranks; ++p) {
    shard.stages = stages.stages_of(p);
    RankPlan rank;
    rank.pipeline = p;
    rank.memory = server_memory(config, architecture, shard, machine);
    if (!most.memory.empty() && device_total(rank.memory) <= device_total(most.memory)) continue;
    if (saves_in_background(config))
      rank.parts.checkpoint_copy = server_share_bytes(config, architecture, shard, machine);
    rank.process = process_bytes(config);
    rank.traffic = server_messages(config, architecture, shard, 0, machine);
    rank.data = static_cast<int>(config.parallel.data);
    most = std::move(rank);
  }
  return most;
}

}  // namespace trireme::plan
