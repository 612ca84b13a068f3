// `trireme doctor` on all ranks: each rank collects its facts, and the first rank reports.
#include <trireme/commands/doctor.hpp>

#include <trireme/base/log.hpp>
#include <trireme/base/process.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/launcher.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/grid/nccl_library.hpp>
#include <trireme/grid/nodes.hpp>
#include <trireme/grid/threads.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/tensor/device.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

namespace trireme::commands {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Tests whether this rank sees the content and the lock of a file that rank 0 writes. Returns the
/// failure; "" if there is none. Collective.
std::string sight_of_first_rank(grid::Communicator& world, const std::string& folder) {
  // Network file systems cache attributes, so that a rank may see a change late.
  constexpr auto patience = std::chrono::seconds(5);
  const std::string path = world.broadcast(
      (std::filesystem::path(folder) /
       text(".trireme-doctor-shared-", this_process().host, "-", this_process().process))
          .string(),
      0, "name of a file");
  std::string wrong;
  int descriptor = -1;
  bool locked = false;
  for (const char* content : {"first", "second"}) {
    bool written = true;
    if (world.rank() == 0) {
      try {
        io::replace_file(path, content);
      } catch (const std::exception&) {
        written = false;
      }
    }
    if (world.all_reduce<std::int64_t>(written ? 1 : 0, grid::Reduction::minimum,
                                       "a written file") == 0)
      break;
    std::string found;
    for (const auto end = std::chrono::steady_clock::now() + patience; wrong.empty();) {
      std::ifstream in(path);
      std::getline(in, found);  // no effect if the file cannot be read
      if (found == content || std::chrono::steady_clock::now() > end) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    if (wrong.empty() && found != content)
      wrong = found.empty() ? text(path, ", which rank 0 has written, does not appear within ",
                                   patience.count(), " s")
                            : text(path, " still holds old content ", patience.count(),
                                   " s after rank 0 has replaced it");
    world.barrier("files that other ranks see");
  }
  struct flock lock {};
  lock.l_type = F_WRLCK;
  if (world.rank() == 0) {
    descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    locked = descriptor >= 0 && ::fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
  }
  if (world.all_reduce<std::int64_t>(locked ? 1 : 0, grid::Reduction::maximum, "a lock") == 1 &&
      world.rank() > 0 && wrong.empty()) {
    descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0 || ::fcntl(descriptor, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
      wrong = text(path, ": the lock of rank 0 is not seen");
  }
  world.barrier("locks that other ranks see");
  if (descriptor >= 0) ::close(descriptor);
  if (world.rank() == 0) ::unlink(path.c_str());
  return wrong;
}

/// Seconds by which the clock of this rank's node is ahead of the first rank's clock. Assumes that
/// the node's clock was read in the middle of the shortest of several round trips. Collective.
double clock_offset(grid::Communicator& world) {
  constexpr int trips = 8;
  const std::vector<grid::Node> nodes = grid::nodes(world);
  const std::size_t mine = grid::node_of(nodes, world.rank());
  std::vector<double> offsets(nodes.size());
  for (std::size_t n = 1; n < nodes.size(); ++n) {
    const int peer = nodes[n].ranks.front();
    double shortest = std::numeric_limits<double>::infinity();
    for (int trip = 0; trip < trips && (world.rank() == 0 || world.rank() == peer); ++trip) {
      double sent = now();
      double theirs = sent;
      const auto bytes = std::as_writable_bytes(std::span(&theirs, 1));
      if (world.rank() == 0) {
        grid::Request to = world.start_send(std::as_bytes(std::span(&sent, 1)), peer, 0);
        grid::Request from = world.start_receive(bytes, peer, 0);
        world.wait(to, "a clock");
        world.wait(from, "a clock");
        const double back = now();
        if (back - sent >= shortest) continue;
        shortest = back - sent;
        offsets[n] = theirs - (sent + back) / 2;
      } else {
        grid::Request from = world.start_receive(bytes, 0, 0);
        world.wait(from, "a clock");
        theirs = now();
        grid::Request to = world.start_send(std::span<const std::byte>(bytes), 0, 0);
        world.wait(to, "a clock");
      }
    }
  }
  // `offsets` is all 0 on ranks other than 0.
  world.all_reduce(std::span(offsets), grid::Reduction::sum, "clocks");
  return offsets[mine];
}

void add_device(RankFacts& facts) {
  if (const auto device = device_info()) {
    facts.device = device->name;
    facts.device_id = device->id;
    facts.device_memory = device->memory;
    facts.device_free = device->free;
  }
#if defined(TRIREME_HAS_NCCL)
  try {
    const grid::NcclLibrary& library = grid::nccl_library();
    facts.nccl = text(library.name, ", ", library.path);
  } catch (const std::exception& error) {
    facts.nccl_error = error.what();
    std::ranges::replace(facts.nccl_error, '\n', ' ');
  }
#endif
}

Finding launcher_finding(const grid::Runtime& runtime, const std::optional<Launch>& launch) {
  const std::string mpi = short_mpi_name(runtime.software().mpi);
  const int ranks = runtime.ranks();
  if (launch && ranks == 1)
    return {Health::failure, "launcher", launch_mismatch(*launch, mpi),
            launch_remedy(*launch, mpi)};
  const std::string found = text(mpi, ", ", ranks, ranks == 1 ? " rank" : " ranks");
  if (launch && !launch->at_least && launch->ranks != ranks)
    return {Health::warning, "launcher",
            text(found, ", but ", launch->launcher, " started ", launch->ranks, " processes"),
            launch_remedy(*launch, mpi)};
  const char* tasks = std::getenv("SLURM_NTASKS");
  if (ranks == 1 && std::getenv("SLURM_STEP_ID") == nullptr && tasks != nullptr &&
      std::atoll(tasks) > 1)
    return {Health::warning, "launcher", text(found, " in a Slurm job of ", tasks, " tasks"),
            "start the command with srun to have all tasks"};
  return {Health::ok, "launcher", found, ""};
}

}  // namespace

ExitCode doctor(grid::Runtime& runtime, const DoctorOptions& options) {
  grid::Communicator& world = runtime.world();
  const auto launch = launched_with_others([](const char* name) { return std::getenv(name); },
                                           runtime.software().mpi);
  if (runtime.ranks() == 1 && launch && !launch->reports)
    return ExitCode::failed;  // another process reports
  RankFacts facts;
  runtime.together([&] {
    facts = facts_of_process(options.folder);
    facts.node = grid::node_name();
    facts.cores = grid::bound_cores();
    add_device(facts);
  });
  facts.clock_offset = clock_offset(world);
  facts.folder.shared = sight_of_first_rank(world, options.folder);
  std::vector<RankFacts> ranks;
  for (const std::string& one : world.gather(packed(facts), 0, "facts of the ranks"))
    ranks.push_back(unpacked_facts(one));
  auto code = static_cast<std::int64_t>(ExitCode::finished);
  runtime.together([&] {
    if (runtime.rank() > 0) return;
    const grid::Software software = runtime.software();
    std::vector<Finding> findings = diagnose(ranks, options.folder);
    findings.insert(findings.begin(), {{Health::ok, "program",
                                        text("trireme " TRIREME_VERSION ", Kokkos ",
                                             software.kokkos, " ", software.execution_space),
                                        ""},
                                       launcher_finding(runtime, launch)});
    code = static_cast<std::int64_t>(report_findings(findings, ranks.size(), options));
  });
  code = world.all_reduce(code, grid::Reduction::maximum, "exit code");
  expect_output_written(runtime);
  return static_cast<ExitCode>(code);
}

}  // namespace trireme::commands
