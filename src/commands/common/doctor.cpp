// Derives the findings of `trireme doctor` from the facts of all ranks.
#include <trireme/commands/doctor.hpp>

#include <trireme/base/log.hpp>
#include <trireme/io/atomic_file.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <time.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

namespace trireme::commands {
namespace {

using nlohmann::ordered_json;

/// "rank 3", or "ranks 0, 1, 2, 3 and 5 more".
std::string named(const std::vector<std::size_t>& ranks) {
  constexpr std::size_t most = 4;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(ranks.size(), most); ++i) names.push_back(text(ranks[i]));
  return text(ranks.size() == 1 ? "rank " : "ranks ", join(names, ", "),
              ranks.size() > most ? text(" and ", ranks.size() - most, " more") : "");
}

std::string counted(std::size_t n, const char* what) {
  return text(n, " ", what, n == 1 ? "" : "s");
}

/// "this process", "all 8 ranks", or the ranks in `chosen`.
std::string some_of(const std::vector<RankFacts>& ranks, const std::vector<std::size_t>& chosen) {
  if (ranks.size() == 1) return "this process";
  return chosen.size() == ranks.size() ? text("all ", ranks.size(), " ranks") : named(chosen);
}

template <class Predicate>
std::vector<std::size_t> ranks_where(const std::vector<RankFacts>& ranks, const Predicate& holds) {
  std::vector<std::size_t> found;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (holds(ranks[r])) found.push_back(r);
  return found;
}

/// A finding with `health` and the first non-empty reason of a rank; without a reason, ok with the
/// value `well`.
Finding by_reason(const std::vector<RankFacts>& ranks, const char* name, Health health,
                  const std::function<const std::string&(const RankFacts&)>& reason,
                  const std::string& well, const std::string& advice) {
  const auto bad = ranks_where(ranks, [&](const RankFacts& r) { return !reason(r).empty(); });
  if (bad.empty()) return {Health::ok, name, well, ""};
  const std::string& first = reason(ranks[bad.front()]);
  return {health, name,
          ranks.size() == 1
              ? first
              : text(some_of(ranks, bad), " on ", ranks[bad.front()].node, ": ", first),
          advice};
}

using Nodes = std::map<std::string, std::vector<std::size_t>>;

Nodes nodes_of(const std::vector<RankFacts>& ranks) {
  Nodes nodes;
  for (std::size_t r = 0; r < ranks.size(); ++r) nodes[ranks[r].node].push_back(r);
  return nodes;
}

Finding node_finding(const Nodes& nodes, std::size_t ranks) {
  std::size_t least = ranks;
  std::size_t most = 0;
  for (const auto& [name, on_node] : nodes) {
    least = std::min(least, on_node.size());
    most = std::max(most, on_node.size());
  }
  if (least == most)
    return {Health::ok, "nodes",
            text(counted(nodes.size(), "node"), " with ", counted(most, "rank"),
                 nodes.size() == 1 ? "" : " each"),
            ""};
  return {Health::warning, "nodes",
          text(least, " to ", most, " ranks per node on ", nodes.size(), " nodes"),
          "start the same number of ranks on every node (srun --ntasks-per-node, mpiexec -ppn)"};
}

bool overlap(const std::string& a, const std::string& b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] == '1' && b[i] == '1') return true;
  return false;
}

/// Finding about the cores of a node's ranks: a warning if ranks share cores.
Finding cores_of_node(const std::vector<RankFacts>& ranks, const std::string& node,
                      const std::vector<std::size_t>& mine) {
  const std::string bind =
      "bind each rank to cores of its own (mpiexec -bind-to core, mpirun --bind-to core, srun "
      "--cpu-bind=cores)";
  std::map<std::string, std::vector<std::size_t>> sets;
  for (const std::size_t r : mine) sets[ranks[r].cores].push_back(r);
  Finding found{Health::ok, "cores", "", ""};
  for (const auto& [cores, sharing] : sets) {
    const auto count = static_cast<std::size_t>(std::ranges::count(cores, '1'));
    if (sharing.size() > count)
      return {Health::warning, "cores",
              text(named(sharing), " share core ", core_list(cores), " of ", node),
              text("start at most one rank per core, or ", bind)};
    if (sharing.size() > 1)
      found = {Health::warning, "cores",
               text(named(sharing), " share cores ", core_list(cores), " of ", node), bind};
  }
  for (auto a = sets.begin(); a != sets.end(); ++a)
    for (auto b = std::next(a); b != sets.end(); ++b)
      if (overlap(a->first, b->first))
        return {Health::warning, "cores",
                text("ranks ", a->second.front(), " (cores ", core_list(a->first), ") and ",
                     b->second.front(), " (cores ", core_list(b->first), ") share some cores of ",
                     node),
                bind};
  return found;
}

Finding core_finding(const std::vector<RankFacts>& ranks, const Nodes& nodes) {
  Finding worst{Health::ok, "cores", "", ""};
  for (const auto& [name, mine] : nodes)
    if (const Finding found = cores_of_node(ranks, name, mine); found.health > worst.health)
      worst = found;
  if (worst.health == Health::ok)
    worst.value =
        ranks.size() == 1
            ? text("this process may use cores ", core_list(ranks.front().cores))
            : text("no two ranks share a core; rank 0 has cores ", core_list(ranks.front().cores));
  return worst;
}

Finding device_finding(const std::vector<RankFacts>& ranks) {
  const RankFacts& first = ranks.front();
  if (first.device.empty())
    return {Health::ok, "devices", "none needed: this build's kernels run on the CPU", ""};
  std::map<std::pair<std::string, std::string>, std::size_t> owners;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto [owner, is_new] = owners.emplace(std::pair(ranks[r].node, ranks[r].device_id), r);
    if (!is_new)
      return {Health::failure, "devices",
              text("ranks ", owner->second, " and ", r, " use the same device of ", ranks[r].node,
                   " (", ranks[r].device, ")"),
              "start one rank per device, or set [parallel] share_devices = true"};
  }
  const auto other =
      ranks_where(ranks, [&](const RankFacts& r) { return r.device != first.device; });
  if (!other.empty())
    return {Health::warning, "devices",
            text("rank 0 has ", first.device, ", ", named(other), " ", ranks[other.front()].device),
            "request nodes of one kind: every step waits for the slowest device"};
  // The driver and this process itself use some of a device's memory.
  const auto used = ranks_where(
      ranks, [](const RankFacts& r) { return r.device_free < r.device_memory / 10 * 9; });
  if (!used.empty())
    return {Health::warning, "devices",
            text("of the ", human_bytes(ranks[used.front()].device_memory), " of ", first.device,
                 ", ", human_bytes(ranks[used.front()].device_free), " are free for ", named(used)),
            "end the other processes on these devices (nvidia-smi, rocm-smi)"};
  return {Health::ok, "devices",
          text(first.device, ", ", human_bytes(first.device_memory),
               ranks.size() > 1 ? ", one for each rank" : ""),
          ""};
}

Finding nccl_finding(const std::vector<RankFacts>& ranks) {
  if (!ranks.front().nccl_error.empty() || !ranks.front().nccl.empty())
    return by_reason(
        ranks, "NCCL", ranks.size() > 1 ? Health::failure : Health::warning,
        [](const RankFacts& r) -> const std::string& { return r.nccl_error; }, ranks.front().nccl,
        "without it only one rank, or [parallel] transport = \"mpi\", can train");
  if (ranks.front().device.empty() || ranks.size() == 1)
    return {Health::ok, "NCCL", "not part of this build: ranks communicate by MPI", ""};
  return {Health::warning, "NCCL",
          "not part of this build: device memory is copied through the host for MPI",
          "build with NCCL or RCCL for several devices (docs/devices.md)"};
}

Finding hdf5_finding(const std::vector<RankFacts>& ranks) {
  for (const RankFacts& r : ranks)
    if (r.hdf5_library != r.hdf5_headers)
      return {Health::failure, "HDF5",
              text("built for version ", r.hdf5_headers, ", but version ", r.hdf5_library,
                   " is loaded on ", r.node),
              "load the module of the build, or correct LD_LIBRARY_PATH"};
  return by_reason(
      ranks, "HDF5", Health::failure,
      [](const RankFacts& r) -> const std::string& { return r.folder.hdf5; },
      text("version ", ranks.front().hdf5_library, ", a small file was written and read"),
      "set HDF5_USE_FILE_LOCKING=FALSE if the file system has no locks, or choose another one");
}

void folder_findings(const std::vector<RankFacts>& ranks, const std::string& folder,
                     std::vector<Finding>& out) {
  const std::string name = folder == "." ? "the current folder" : folder;
  out.push_back(by_reason(
      ranks, "files", Health::failure,
      [](const RankFacts& r) -> const std::string& { return r.folder.files; },
      text("created, flushed and replaced in ", name, ", ", human_bytes(ranks.front().folder.free),
           " free"),
      "choose a folder where you may write, on a file system with free space (--folder)"));
  if (out.back().health != Health::ok) return;
  out.push_back(by_reason(
      ranks, "links", Health::failure,
      [](const RankFacts& r) -> const std::string& { return r.folder.links; },
      "hard links work: one job at a time can own a run",
      "choose a file system with hard links for run.directory"));
  out.push_back(by_reason(
      ranks, "locks", Health::warning,
      [](const RankFacts& r) -> const std::string& { return r.folder.locks; },
      "fcntl and flock locks work",
      "mount the file system with locks (Lustre: -o flock), or rely on the heartbeat that a job "
      "writes every 10 seconds"));
  if (ranks.size() > 1)
    out.push_back(by_reason(
        ranks, "shared files", Health::failure,
        [](const RankFacts& r) -> const std::string& { return r.folder.shared; },
        "all ranks see the first rank's files",
        "choose a folder on a file system that all nodes share"));
  out.push_back(hdf5_finding(ranks));
}

std::string date(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  std::array<char, 64> words{};
  ::gmtime_r(&whole, &parts);
  std::strftime(words.data(), words.size(), "%F %T UTC", &parts);
  return words.data();
}

Finding clock_finding(const std::vector<RankFacts>& ranks) {
  const std::string advice = "start the time service of the nodes (chronyd, ntpd)";
  const auto early = ranks_where(ranks, [](const RankFacts& r) { return r.clock < r.built; });
  if (!early.empty()) {
    const RankFacts& r = ranks[early.front()];
    return {Health::failure, "clock",
            text(r.node, " has ", date(r.clock), ", before the program was built (", date(r.built),
                 ")"),
            advice};
  }
  const auto [least, most] = std::ranges::minmax_element(ranks, {}, &RankFacts::clock_offset);
  const double spread = most->clock_offset - least->clock_offset;
  if (spread > 1)
    return {Health::warning, "clock",
            text("the clocks of ", least->node, " and ", most->node, " differ by ",
                 fixed(spread, 1), " s"),
            advice};
  return {Health::ok, "clock",
          text(date(ranks.front().clock),
               ranks.size() > 1
                   ? text(", differences between nodes at most ", fixed(spread * 1000, 1), " ms")
                   : ""),
          ""};
}

Finding memory_finding(const std::vector<RankFacts>& ranks, const Nodes& nodes) {
  constexpr Bytes little = Bytes{1} << 30;
  Bytes least = -1;
  std::string value;
  for (const auto& [name, mine] : nodes) {
    const RankFacts& r = ranks[mine.front()];
    const Bytes limit =
        r.memory_limit < 0 ? r.node_memory : std::min(r.memory_limit, r.node_memory);
    const Bytes share = limit / static_cast<Bytes>(mine.size());
    if (least >= 0 && share >= least) continue;
    least = share;
    value = text(human_bytes(share), " per rank on ", name, ": ", human_bytes(limit),
                 limit < r.node_memory
                     ? text(" (cgroup limit; the node has ", human_bytes(r.node_memory), ")")
                     : "",
                 " for ", counted(mine.size(), "rank"));
  }
  if (least >= little) return {Health::ok, "memory", value, ""};
  return {Health::warning, "memory", value,
          "request more memory for the job (Slurm: --mem, --mem-per-cpu), or start fewer ranks per "
          "node"};
}

/// Lowest value of a limit, and the rank that has it; −1 and the first rank if there is no limit.
std::pair<std::int64_t, const RankFacts*> least_limit(const std::vector<RankFacts>& ranks,
                                                      std::int64_t RankFacts::*limit) {
  std::pair<std::int64_t, const RankFacts*> least{-1, &ranks.front()};
  for (const RankFacts& r : ranks)
    if (r.*limit >= 0 && (least.first < 0 || r.*limit < least.first)) least = {r.*limit, &r};
  return least;
}

std::string limit_text(std::int64_t value, const RankFacts& rank, bool is_bytes,
                       std::size_t ranks) {
  if (value < 0) return "unlimited";
  return text(is_bytes ? human_bytes(value) : with_commas(value),
              ranks > 1 ? text(" on ", rank.node) : "");
}

void limit_findings(const std::vector<RankFacts>& ranks, std::vector<Finding>& out) {
  struct Limit {
    const char* name;
    std::int64_t RankFacts::*value;
    bool is_bytes;
    std::int64_t wanted;  ///< -1: unlimited
    std::string advice;
  };
  const auto files = static_cast<std::int64_t>(std::max<std::size_t>(1024, ranks.size() + 512));
  const std::vector<Limit> limits{
      {"address space", &RankFacts::address_space, true, -1,
       "run `ulimit -v unlimited` before the launcher: MPI and device drivers reserve more "
       "addresses than memory"},
      {"open files", &RankFacts::open_files, false, files,
       text(
           "run `ulimit -n ", files,
           "` before the launcher: connections, shards and token files are open at the same time")},
      {"stack", &RankFacts::stack, true, Bytes{8} << 20,
       "run `ulimit -s 8192` before the launcher"}};
  for (const Limit& limit : limits) {
    const auto [value, rank] = least_limit(ranks, limit.value);
    const bool well = value < 0 || (limit.wanted >= 0 && value >= limit.wanted);
    out.push_back({well ? Health::ok : Health::warning, limit.name,
                   limit_text(value, *rank, limit.is_bytes, ranks.size()),
                   well ? "" : limit.advice});
  }
  const RankFacts& first = ranks.front();
  const bool files_of_cores = first.core_file != 0 && !first.core_pattern.starts_with("|");
  out.push_back({files_of_cores ? Health::warning : Health::ok, "core files",
                 first.core_file == 0
                     ? "off"
                     : text(first.core_file < 0 ? "unlimited" : human_bytes(first.core_file),
                            ", to ", first.core_pattern),
                 files_of_cores ? "run `ulimit -c 0` before the launcher, unless you want a file "
                                  "of all its memory from every rank that crashes"
                                : ""});
}

Finding shared_memory_finding(const std::vector<RankFacts>& ranks, const Nodes& nodes) {
  constexpr Bytes wanted = Bytes{64} << 20;  // per rank
  for (const auto& [name, mine] : nodes) {
    const Bytes size = ranks[mine.front()].shared_memory;
    if (size < wanted * static_cast<Bytes>(mine.size()) && mine.size() > 1)
      return {Health::warning, "shared memory",
              size < 0 ? text("no /dev/shm on ", name)
                       : text("/dev/shm of ", name, " has ", human_bytes(size)),
              text("give it at least ", human_bytes(wanted * static_cast<Bytes>(mine.size())),
                   " (containers: --shm-size, or --ipc=host)")};
  }
  return {Health::ok, "shared memory",
          text("/dev/shm has ", human_bytes(std::max<Bytes>(0, ranks.front().shared_memory))), ""};
}

constexpr std::array<const char*, 3> health_names{"ok", "warning", "failure"};

std::string name_of(Health health) {
  return health_names[static_cast<std::size_t>(health)];
}

}  // namespace

std::string core_list(const std::string& cores) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    if (cores[i] != '1') continue;
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == '1') ++last;
    parts.push_back(last == i ? text(i) : text(i, "-", last));
    i = last;
  }
  return join(parts, ",");
}

std::vector<Finding> diagnose(const std::vector<RankFacts>& ranks, const std::string& folder) {
  const Nodes nodes = nodes_of(ranks);
  std::vector<Finding> out{node_finding(nodes, ranks.size())};
  if (!ranks.front().cores.empty()) {  // otherwise the engine did not start
    out.push_back(core_finding(ranks, nodes));
    out.push_back(device_finding(ranks));
    out.push_back(nccl_finding(ranks));
  }
  folder_findings(ranks, folder, out);
  out.push_back(clock_finding(ranks));
  out.push_back(memory_finding(ranks, nodes));
  out.push_back(shared_memory_finding(ranks, nodes));
  limit_findings(ranks, out);
  return out;
}

ExitCode report_findings(const std::vector<Finding>& findings, std::size_t ranks,
                         const DoctorOptions& options) {
  std::array<std::size_t, 3> counts{};
  for (const Finding& f : findings) ++counts[static_cast<std::size_t>(f.health)];
  const auto worst = counts[2] > 0 ? Health::failure : counts[1] > 0 ? Health::warning : Health::ok;
  if (!options.json.empty()) {
    ordered_json list = ordered_json::array();
    for (const Finding& f : findings)
      list.push_back({{"check", f.check},
                      {"status", name_of(f.health)},
                      {"value", f.value},
                      {"advice", f.advice}});
    const ordered_json all{{"version", TRIREME_VERSION},
                           {"ranks", ranks},
                           {"folder", options.folder},
                           {"status", name_of(worst)},
                           {"checks", std::move(list)}};
    const std::string content = all.dump(2, ' ', false, ordered_json::error_handler_t::replace);
    io::write_json(options.json, content);
  }
  if (options.json != "-") {
    for (const Finding& f : findings)
      say(padded(name_of(f.health), 9), padded(f.check, 15), f.value,
          f.advice.empty() ? "" : "; " + f.advice);
    say(counted(counts[2], "failure"), ", ", counted(counts[1], "warning"), ", ", findings.size(),
        " checks");
  }
  return worst == Health::failure ? ExitCode::failed : ExitCode::finished;
}

ExitCode report_no_start(int argc, const char* const* argv, const std::string& check,
                         const std::string& reason) {
  if (!is_first_process()) return ExitCode::failed;
  CLI::App app;
  DoctorOptions options;
  add_doctor_options(app, options);
  if (!parse_command_line(app, argc, argv)) return ExitCode::finished;
  const std::vector<RankFacts> ranks{facts_of_process(options.folder)};
  std::vector<Finding> findings = diagnose(ranks, options.folder);
  const std::size_t end = reason.find("  [src/");
  findings.insert(findings.begin(), {Health::failure, check, reason.substr(0, end), ""});
  return report_findings(findings, 1, options);
}

}  // namespace trireme::commands
