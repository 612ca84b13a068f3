#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/base/text.hpp>
#include <trireme/commands/report/markup.hpp>
#include <trireme/commands/report/run_report.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/stages.hpp>

#include <algorithm>
#include <string_view>

namespace trireme::commands {
namespace {

std::string range(std::int64_t first, std::int64_t last) {
  return first == last ? text(first) : text(first, " to ", last);
}

std::string grid_text(const deck::ParallelConfig& p) {
  return text(p.ranks(), " = ", p.axes().named_sizes());
}

std::string fact(std::string_view name, const std::string& value) {
  return text("<dt>", name, "</dt><dd>", escaped(value), "</dd>\n");
}

std::string stages(const deck::Config& c, const architecture::Architecture& a) {
  const auto groups = plan::group_stages(a, c.parallel);
  double all = 0;
  for (const plan::StageGroup& g : groups) all += g.flops * g.count();
  std::vector<std::vector<std::string>> rows;
  for (const plan::StageGroup& g : groups)
    rows.push_back({range(g.first, g.last),
                    g.layers_each == 0 ? "none" : range(g.layers.offset, g.layers.end() - 1),
                    text(g.layers_each), with_commas(g.parameters),
                    fixed(100 * g.flops / all, 1) + " %"});
  return html_table("Pipeline stages; equal stages share a line",
                    {"Stages", "Layers", "Layers each", "Parameters each", "FLOPs each"}, rows, 2);
}

}  // namespace

std::string versions_of(const RunReport& report) {
  std::vector<std::string> versions;
  if (report.history)
    for (const RunJob& job : report.history->jobs)
      if (std::ranges::find(versions, job.start.version) == versions.end())
        versions.push_back(job.start.version);
  return join(versions, ", ");
}

std::string report_headline(const RunReport& report) {
  const deck::Config& c = report.deck.config;
  const std::int64_t ranks = c.parallel.ranks();
  const std::string versions = versions_of(report);
  return text("<p class=\"soft\">", name_of(c.model.family), ", ",
              with_commas(architecture::describe(c.model).parameters()), " parameters, ",
              name_of(c.precision.compute), ", ", ranks, ranks == 1 ? " rank" : " ranks",
              versions.empty() ? "" : ", trained by Trireme " + escaped(versions), "</p>\n");
}

std::string report_layout(const RunReport& report) {
  const deck::Config& c = report.deck.config;
  const auto a = architecture::describe(c.model);
  std::string schedule(name_of(c.parallel.schedule));
  if (c.parallel.reads_program()) schedule += " " + c.parallel.program;
  if (c.parallel.chunks > 1) schedule += text(", ", c.parallel.chunks, " stages on each rank");
  std::string batch = text(c.batch.global, " samples per step, micro-batches of ", c.batch.micro);
  if (c.batch.ramp_start > 0)
    batch += text(", growing from ", c.batch.ramp_start, " by ", c.batch.ramp_increment,
                  " over the first ", with_commas(c.batch.ramp_samples), " samples");
  std::string options = text("recompute ", name_of(c.parallel.recompute));
  if (c.parallel.sequence_parallel) options += ", sequence parallel";
  if (c.parallel.shard != Sharding::none) options += text(", shard ", name_of(c.parallel.shard));
  if (c.parallel.divides_state() && c.parallel.shard_group > 0)
    options += text(" in groups of ", c.parallel.shard_group);
  if (c.parallel.expert > 1) options += text(", experts of ", c.parallel.expert, " replicas");
  if (c.parallel.offload != Offload::none)
    options += text(", offload ", name_of(c.parallel.offload));
  return text("<h2>Layout</h2>\n<dl class=\"facts\">\n", fact("Ranks", grid_text(c.parallel)),
              fact("Schedule", schedule),
              fact("Model", text(name_of(c.model.family), ", ", c.model.layers, " layers, hidden ",
                                 c.model.hidden, ", ", c.model.heads, " heads, sequence ",
                                 c.model.sequence, ", vocabulary ", c.model.vocabulary)),
              fact("Parameters", with_commas(a.parameters())), fact("Batch", batch),
              fact("Options", options), "</dl>\n", stages(c, a));
}

}  // namespace trireme::commands
