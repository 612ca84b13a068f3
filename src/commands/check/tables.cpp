// Tables of trireme check, as lines with aligned columns; plan/ computes the values.
#include <trireme/commands/check/tables.hpp>

#include <trireme/base/text.hpp>
#include <trireme/plan/local_training.hpp>

#include <algorithm>

namespace trireme::commands {
namespace {

using Cells = std::vector<std::string>;

/// Width on a terminal: the number of UTF-8 characters, each counted by its first byte.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string range(std::int64_t first, std::int64_t last) {
  return first == last ? text(first) : text(first, " … ", last);
}

/// A line that says whether `needed` bytes fit into the `memory` of a rank, with a remedy if they
/// do not; "" if the memory is unknown (0).
std::string fit(Bytes needed, Bytes memory) {
  if (memory == 0) return "";
  const std::string amounts = text(human_bytes(needed), " of ", human_bytes(memory));
  if (needed <= memory) return text("\n  fits: ", amounts);
  return text("\n  does not fit: ", amounts, ", ", human_bytes(needed - memory),
              " too much; use more tensor or pipeline ranks, set recompute, shard "
              "or offload in [parallel], or reduce [batch] micro");
}

/// "rank 3": world rank of a planned rank.
std::string place(const plan::RankPlan& r, const deck::ParallelConfig& parallel) {
  const layout::AxisList axes = parallel.axes();
  return text("rank ", r.pipeline * axes.stride(Axis::pipeline) +
                           r.tensor * axes.stride(Axis::tensor) + r.data * axes.stride(Axis::data));
}

}  // namespace

std::string columns(const std::vector<Cells>& rows, int numbers, const std::string& indent,
                    bool words_last) {
  std::vector<std::size_t> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  }
  std::string out;
  for (const Cells& row : rows) {
    std::string line = indent;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string gap(widths[c] - width(row[c]), ' ');
      const bool right = static_cast<int>(c) >= numbers && !(words_last && c + 1 == widths.size());
      line += right ? gap + row[c] : row[c] + gap;
      if (c + 1 < row.size()) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  if (!out.empty()) out.pop_back();
  return out;
}

namespace {

/// FLOPs of the pipeline rank with the most FLOPs, divided by the mean of all pipeline ranks.
double imbalance(const std::vector<plan::StageGroup>& groups, const layout::StageMap& map) {
  std::vector<double> by_stage;
  for (const plan::StageGroup& g : groups)
    by_stage.insert(by_stage.end(), static_cast<std::size_t>(g.count()), g.flops);
  double most = 0;
  double all = 0;
  for (Rank r = 0; r < map.ranks; ++r) {
    double sum = 0;
    for (const Stage s : map.stages_of(r)) sum += by_stage[static_cast<std::size_t>(s)];
    most = std::max(most, sum);
    all += sum;
  }
  return most * map.ranks / all;
}

}  // namespace

std::string stages_report(const std::vector<plan::StageGroup>& groups,
                          const deck::ParallelConfig& parallel) {
  double all = 0;
  int empty = 0;
  for (const plan::StageGroup& g : groups) {
    all += g.flops * g.count();
    if (g.layers_each == 0) empty += g.count();
  }
  const auto stages = parallel.stages();
  std::vector<Cells> rows{{"stage", "layers", "layers each", "parameters each", "FLOPs each"}};
  for (const plan::StageGroup& g : groups)
    rows.push_back({range(g.first, g.last),
                    g.layers_each == 0 ? "none" : range(g.layers.offset, g.layers.end() - 1),
                    text(g.layers_each), with_commas(g.parameters),
                    fixed(100 * g.flops / all, stages > 20 ? 2 : 1) + " %"});
  std::string out = columns(rows, 2, "  ");
  if (parallel.pipeline > 1)
    out += text("\n  the pipeline rank with the most FLOPs has ",
                fixed(100 * imbalance(groups, parallel.stage_map()) - 100, 1),
                " % more than the mean of all");
  if (parallel.chunks > 1) {
    const bool v = parallel.stage_map().placement == StagePlacement::v;
    out += text("\n  stage s is on pipeline rank s mod ", parallel.pipeline,
                v ? ", in odd chunks counted from the last rank" : "", "; each rank has ",
                parallel.chunks, " stages");
  }
  if (empty > 0)
    out += text("\n  note: ", empty, empty == 1 ? " stage has" : " stages have",
                " no layer, only the embedding, the logits or nothing; use fewer pipeline ranks");
  return out;
}

std::string ramp_report(const deck::BatchSchedule& batches,
                        const std::vector<schedule::Program>& programs) {
  constexpr std::size_t most = 12;
  constexpr std::size_t last = 3;
  const auto& phases = batches.phases();
  std::vector<Cells> rows{{"", "from step", "after samples", "global batch", "micro-batches"}};
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (phases.size() > most && i == most - last) {
      rows.push_back({"", "…", "…", "…", "…"});
      i = phases.size() - last;
    }
    rows.push_back({"", with_commas(phases[i].first_step), with_commas(phases[i].first_sample),
                    text(phases[i].global), text(programs[i].layout.micro_batches)});
  }
  return columns(rows, 1, "            ");
}

std::string memory_report(const std::vector<plan::RankPlan>& ranks,
                          const deck::ParallelConfig& parallel, const plan::Machine& machine) {
  const plan::RankPlan& most = plan::most_memory(ranks);
  const plan::RankPlan& least = plan::least_memory(ranks);
  const bool differ = plan::device_total(most.memory) != plan::device_total(least.memory);
  const auto line = [&](const std::string& what, Bytes a, Bytes b) {
    Cells cells{what, human_bytes(a)};
    if (differ) cells.push_back(human_bytes(b));
    return cells;
  };
  std::vector<Cells> rows;
  if (differ)
    rows.push_back({"", "most, " + place(most, parallel), "least, " + place(least, parallel)});
  // A rank has no rows for memory that it does not need.
  const auto bytes_of = [](const plan::RankPlan& rank, const std::string& what) {
    const auto row = std::ranges::find(rank.memory, what, &plan::MemoryRow::what);
    return row == rank.memory.end() ? Bytes{0} : row->bytes;
  };
  std::vector<plan::MemoryRow> all = most.memory;
  for (const plan::MemoryRow& row : least.memory)
    if (std::ranges::find(all, row.what, &plan::MemoryRow::what) == all.end()) all.push_back(row);
  const auto add_memory = [&](bool on_host) {
    for (const plan::MemoryRow& row : all)
      if (row.on_host == on_host)
        rows.push_back(line(row.what, bytes_of(most, row.what), bytes_of(least, row.what)));
  };
  add_memory(false);
  rows.push_back(line("sum", plan::device_total(most.memory), plan::device_total(least.memory)));
  add_memory(true);
  if (most.parts.checkpoint_copy > 0)
    rows.push_back(
        line("checkpoint copy (host)", most.parts.checkpoint_copy, least.parts.checkpoint_copy));
  if (most.parts.reduction > 0)
    rows.push_back(line("gradient reduction (host)", most.parts.reduction, least.parts.reduction));
  const auto exactly = [](Bytes bytes) {
    return text(human_bytes(bytes), ", ", with_commas(bytes), " bytes");
  };
  const plan::RankPlan& peak = plan::most_at_peak(ranks);
  return text(columns(rows, 1, "  "),
              "\n  process of a rank, not included above (host): ", exactly(peak.process),
              machine.on_device()
                  ? ""
                  : text("\n  peak of a rank, including its process: ", exactly(peak.peak())),
              fit(machine.on_device() ? plan::device_total(most.memory) : peak.peak(),
                  machine.device.memory));
}

std::string local_report(const std::vector<plan::RankPlan>& ranks, const deck::Config& config,
                         const plan::Machine& machine) {
  Bytes share = 0;
  for (const plan::RankPlan& rank : ranks)
    share = std::max(share, rank.parts.checkpoint_copy / plan::checkpoint_copies(config));
  const Bytes per_rank = plan::local_shares * share;
  const std::int64_t on_node = machine.node.devices;
  const std::string files =
      text(plan::local_checkpoints - 1, " complete ones, and one that is ", "being written");
  std::vector<Cells> rows{
      {"per rank", human_bytes(per_rank), "its share, and one of the partner node"}};
  if (on_node > 0)
    rows.push_back({"per node", human_bytes(plan::local_checkpoints * on_node * per_rank),
                    text(on_node, " ranks, ", files)});
  else
    rows.push_back({"per node", human_bytes(plan::local_checkpoints * per_rank),
                    text("times its ranks: ", files)});
  return columns(rows, 3, "  ");
}

std::string traffic_report(const std::vector<plan::RankPlan>& ranks,
                           const deck::ParallelConfig& parallel) {
  const plan::RankPlan& most = plan::most_traffic(ranks);
  if (most.traffic.empty()) return "  none: a single rank";
  std::vector<Cells> rows{{place(most, parallel), "", "operations", "bytes"}};
  for (const plan::TrafficRow& axis : plan::per_axis(most.traffic)) {
    std::vector<Cells> parts;
    for (const plan::TrafficRow& r : most.traffic)
      if (r.axis == axis.axis)
        parts.push_back({"", r.what, with_commas(r.operations), human_bytes(r.bytes)});
    if (parts.size() > 1)
      parts.insert(parts.begin(),
                   {"", "total", with_commas(axis.operations), human_bytes(axis.bytes)});
    parts.front().front() = axis.axis;
    rows.insert(rows.end(), parts.begin(), parts.end());
  }
  return columns(rows, 2, "  ");
}

std::string workers_report(const deck::Config& config, const architecture::Architecture& a,
                           const std::vector<plan::RankPlan>& ranks, const plan::Machine& machine) {
  const deck::ParallelConfig& p = config.parallel;
  const deck::LocalConfig& local = config.local;
  const std::int64_t here = p.workers_per_rank(), per_worker = p.ranks() / p.worker_groups();
  std::string lines =
      text("  ", p.workers, " workers, ",
           here > 1 ? text("of which each rank trains ", here, " in turn")
                    : text("each on ", per_worker, per_worker == 1 ? " rank" : " ranks"),
           "; an outer step every ", local.inner_steps, " steps",
           local.fragments > 1 ? text(" of each of ", local.fragments, " fragments") : "",
           local.delay > 0 ? text(", ", local.delay, " steps after differences are sent") : "");
  // The last outer step is `delay` steps after the last differences were sent.
  const std::int64_t outer =
      std::max<std::int64_t>(0, config.run.steps - local.delay) / local.inner_steps;
  const std::int64_t last = outer * local.inner_steps + (outer > 0 ? local.delay : 0);
  if (local.fragments == 1 && last < config.run.steps)
    lines += text("\n  the last outer step is after step ", last, ", so that the last ",
                  config.run.steps - last, " steps of the run do not change the weights that it ",
                  "leaves; choose [run] steps = ", (outer + 1) * local.inner_steps + local.delay);
  const plan::RankPlan& most = plan::most_traffic(ranks);
  const auto rows = plan::outer_traffic(
      config, a, architecture::make_shard(a, p, most.pipeline, most.tensor), machine);
  if (rows.empty()) return lines + "\n  no messages: one rank trains all workers";
  std::vector<Cells> cells{{place(most, p), text("in ", local.inner_steps, " steps"), "operations",
                            "bytes", "per step"}};
  for (const plan::TrafficRow& r : rows)
    cells.push_back({r.axis, r.what, with_commas(r.operations), human_bytes(r.bytes),
                     human_bytes(r.bytes / local.inner_steps)});
  cells.back().front() = "";
  return lines + "\n" + columns(cells, 2, "  ");
}

}  // namespace trireme::commands
