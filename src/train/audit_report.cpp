// Reports of wrong results: the log, events, and the list of hosts for job scripts to exclude.
#include <trireme/train/audit_report.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/base/events.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/process.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/tensor/device.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace trireme::train {
namespace {

constexpr std::size_t most_suspects = 16;

/// This host's name in the batch system.
std::string host_name() {
  const char* slurm = std::getenv("SLURMD_NODENAME");
  return slurm != nullptr ? slurm : this_process().host;
}

/// A description such as "rank 3 on node017 (NVIDIA H100 80GB HBM3, GPU-…)".
std::string place_of(const Suspect& suspect) {
  return text("rank ", suspect.rank, " on ", suspect.host,
              suspect.device.empty() ? "" : text(" (", suspect.device, ")"));
}

std::string line_of(const Suspect& suspect) {
  return text(place_of(suspect), suspect.certain ? " " : " possibly ", suspect.what);
}

/// Appends one line per suspect to the file; the line begins with the suspect's host.
void list_hosts(const std::string& path, std::int64_t step, const std::vector<Suspect>& suspects) {
  std::ostringstream all;
  if (std::ifstream before(path); before) all << before.rdbuf();
  for (const Suspect& suspect : suspects)
    all << suspect.host << "  # " << to_text(utc_now()) << ", step " << step << ": "
        << line_of(suspect) << '\n';
  io::replace_file(path, all.str());
}

}  // namespace

std::vector<Suspect> suspects_of(grid::Communicator& world, const Finding& mine) {
  const std::vector<std::int64_t> levels = world.all_gather(mine.level, "findings of an audit");
  const std::int64_t gravest = std::ranges::max(levels);
  const std::int64_t least = std::min<std::int64_t>(gravest, Finding::suspected);
  std::vector<Suspect> suspects;
  for (Rank rank = 0; rank < world.size() && suspects.size() < most_suspects; ++rank) {
    const std::int64_t level = levels[static_cast<std::size_t>(rank)];
    if (level < least || level == Finding::none) continue;
    const auto device = device_info();
    const auto tell = [&](const std::string& value) {
      return world.broadcast(value, rank, "a finding of an audit");
    };
    Suspect& suspect = suspects.emplace_back();
    suspect.rank = rank;
    suspect.host = tell(host_name());
    suspect.device = tell(device ? text(device->name, ", ", device->id) : std::string());
    suspect.what = tell(mine.what);
    suspect.certain = level == Finding::wrong;
  }
  return suspects;
}

void report_suspects(grid::Communicator& world, const std::string& directory, std::int64_t step,
                     const std::vector<Suspect>& suspects, bool repaired) {
  check(!suspects.empty(), "step ", step, ": an audit found a difference, but no rank that has it");
  for (const Suspect& suspect : suspects)
    events::record(events::Audit{suspect.rank, suspect.host, suspect.device, suspect.what,
                                 suspect.certain, repaired},
                   step);
  const std::string file = directory + "/suspect_hosts";
  if (world.rank() == 0) list_hosts(file, step, suspects);
  std::vector<std::string> lines;
  for (const Suspect& suspect : suspects) lines.push_back(line_of(suspect));
  const std::string found =
      text("step ", step, ": the audit found wrong numbers: ", join(lines, "; "));
  if (repaired) return say(found, "; repaired, the run continues. The hosts are listed in ", file);
  const std::string message =
      text(found, ". The step was not applied; restart with checkpoint.restart=latest on other ",
           "hosts than those in ", file);
  events::record(
      events::Stop{events::StopCause::audit, static_cast<int>(ExitCode::wrong_numbers), message});
  grid::together(world, [&] {
    if (world.rank() == 0) throw Error(message, ExitCode::wrong_numbers);
  });
}

}  // namespace trireme::train
