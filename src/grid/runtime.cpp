// MPI and Kokkos of a process, errors that end all ranks, and the process grid's communicators.
#include <trireme/grid/runtime.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/events.hpp>
#include <trireme/base/folder_owner.hpp>
#include <trireme/base/log.hpp>
#include <trireme/grid/devices.hpp>
#include <trireme/grid/node_file.hpp>
#include <trireme/grid/pause.hpp>
#include <trireme/grid/threads.hpp>
#include <trireme/grid/watchdog.hpp>
#include <trireme/tensor/device.hpp>
#include <trireme/tensor/kernel_arguments.hpp>
#include <trireme/tensor/views.hpp>

#include <mpi.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

namespace trireme::grid {

void together(Communicator& world, const std::function<void()>& local) {
  std::optional<SharedError> mine;
  try {
    local();
  } catch (const Error& e) {
    mine.emplace(e.what(), e.code());
  } catch (const std::exception& e) {
    mine.emplace(plain_message(e));
  }
  const std::int64_t nobody = std::numeric_limits<std::int64_t>::max();
  const std::int64_t speaker = world.all_reduce<std::int64_t>(
      mine ? world.rank() : nobody, Reduction::minimum, "agreement on errors");
  if (speaker == nobody) return;
  std::int64_t code = speaker == world.rank() ? static_cast<std::int64_t>(mine->code()) : 0;
  code = world.all_reduce<std::int64_t>(code, Reduction::maximum, "agreement on the exit code");
  if (speaker == world.rank()) throw *mine;
  throw SilentError(static_cast<ExitCode>(code));
}

namespace {

/// Starts Kokkos without the command line, because Kokkos would answer "--help".
void start_kokkos() {
#if KOKKOS_VERSION >= 40000
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  Kokkos::InitializationSettings settings;
  if (world_rank > 0) settings.set_disable_warnings(true);
  if (const int threads = threads_of_rank(); threads > 0) settings.set_num_threads(threads);
  if constexpr (!exec_on_host && !as_on_device) {
    MPI_Comm node = MPI_COMM_NULL;
    int rank = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank);
    MPI_Comm_free(&node);
    const int devices = visible_devices();
    check(devices > 0,
          "no device is visible, but this installation's kernels run on devices; request devices "
          "for the job (Slurm: --gpus-per-node) and check the driver (nvidia-smi, rocm-smi)");
    settings.set_device_id(rank % devices);
  }
  Kokkos::initialize(settings);
#else
  Kokkos::initialize();
#endif
  if constexpr (!exec_on_host) check_kernel_arguments(Exec());
}

/// Time that a launcher gets to forward output before the job ends.
constexpr int launcher_milliseconds = 300;

/// Waits 30 s for the rank that reports to end this process, and then ends the process.
[[noreturn]] void wait_for_end() {
  std::this_thread::sleep_for(std::chrono::seconds(30));
  _exit(static_cast<int>(ExitCode::failed));
}

/// The longest time that MPI_Finalize may take: TRIREME_END_SECONDS, or `usual` if it is not set.
std::chrono::seconds end_limit(std::chrono::seconds usual) {
  constexpr const char* variable = "TRIREME_END_SECONDS";
  const char* given = std::getenv(variable);
  if (given == nullptr) return usual;
  const std::string_view word = given;
  std::uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(word.begin(), word.end(), seconds);
  check_usage(error == std::errc() && end == word.end() && seconds > 0, variable, " = \"", word,
              "\" is not a number of seconds; set it to a whole number from 1 on, or unset it");
  return std::chrono::seconds(seconds);
}

/// Calls MPI_Finalize, which sometimes hangs with MPICH 4.0 and UCX over TCP. If the call does not
/// return within `limit`, ends the process with `code`; ranks that do not log the warning end 2 s
/// later.
void finalize_mpi(std::chrono::seconds limit, bool speaks, ExitCode code) {
  const std::jthread timer([&](const std::stop_token& finished) {
    const auto waits = limit + std::chrono::seconds(speaks ? 0 : 2);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait_for(lock, finished, waits, [] { return false; });
    if (finished.stop_requested()) return;
    log::warn(text("MPI_Finalize did not return within ", limit.count(),
                   " s; the processes end without it"));
    std::fflush(nullptr);
    _exit(static_cast<int>(code));
  });
  MPI_Finalize();
}

}  // namespace

Runtime::Runtime(int& argc, char**& argv) {
  int initialised = 0;
  MPI_Initialized(&initialised);
  check(initialised == 0, "only one Runtime per process is possible");
  // Must precede MPI_Init_thread, which may start the device's runtime.
  if constexpr (!exec_on_host && !as_on_device) set_device_environment();
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    throw Error(
        "MPI_Init_thread failed; start the program with the launcher of the MPI that it was built "
        "with");
  start_kokkos();
  world_ = std::make_unique<Communicator>(MPI_COMM_WORLD, "world");
  error_claim_ = std::make_unique<NodeClaim>();
  find_shared_cores(*world_);
  log::set_speaking(rank() == 0);
}

Runtime::~Runtime() {
  const bool speaks = rank() == 0;
  error_claim_.reset();
  world_.reset();
  Kokkos::finalize();
  finalize_mpi(end_limit_, speaks, code_);
}

Software Runtime::software() const {
  char library[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(library, &length);
  std::string mpi(library, static_cast<std::size_t>(length));
  mpi = mpi.substr(0, mpi.find('\n'));
  std::replace(mpi.begin(), mpi.end(), '\t', ' ');
  return {text(KOKKOS_VERSION / 10000, ".", KOKKOS_VERSION / 100 % 100, ".", KOKKOS_VERSION % 100),
          Exec::name(), ranks_have_threads ? static_cast<int>(Exec().concurrency()) : 1, mpi};
}

std::string Runtime::description() const {
  const Software s = software();
  return text(ranks(), ranks() == 1 ? " rank" : " ranks", ", Kokkos ", s.kokkos, " ",
              s.execution_space,
              ranks_have_threads ? text(" (threads per rank: ", s.threads, ")") : "", ", ", s.mpi);
}

ExitCode Runtime::guard(const std::function<ExitCode()>& work) {
  try {
    together([&] { end_limit_ = end_limit(end_limit_); });
    return ends_with(work());
  } catch (const SilentError&) {
    throw;
  } catch (const SharedError&) {
    throw;
  } catch (const Error& e) {
    abort(e);
  } catch (const std::exception& e) {
    abort(Error(plain_message(e)));
  }
}

void Runtime::abort(const Error& error) {
  // If several ranks fail at the same time, normally only one reports. Without a watchdog,
  // rank 0 does not sleep, so that it ends the job before other ranks report.
  const Watchdog::Claim claim = Watchdog::silence();
  const auto first = std::chrono::milliseconds(launcher_milliseconds);
  if (claim == Watchdog::Claim::taken) wait_for_end();
  if (claim == Watchdog::Claim::none && rank() > 0)
    std::this_thread::sleep_for(2 * first + std::min(rank() * first / 10, 2 * first));
  if (claim == Watchdog::Claim::none && !error_claim_->win()) wait_for_end();
  log::set_speaking(true);
  log::error(ranks() > 1 ? text("rank ", rank(), ": ", error.what()) : std::string(error.what()));
  events::record(
      events::Stop{events::StopCause::error, static_cast<int>(error.code()), error.what()});
  std::fflush(nullptr);
  if (ranks() > 1) std::this_thread::sleep_for(first);
  release_owned_folders();
  if (ranks() == 1) _exit(static_cast<int>(error.code()));
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(error.code()));
  _exit(static_cast<int>(error.code()));
}

Grid::Grid(Communicator& world, const layout::ProcessGrid& process_grid,
           const layout::StageMap& stages)
    : world_(world), process_grid_(process_grid), stages_(stages) {
  check(process_grid.ranks() == world.size(), "a process grid of ", process_grid.ranks(),
        " ranks does not match the job's ", world.size());
  model_ = process_grid.weight_ranks() == 1
               ? Communicator::alone("model")
               : world.split(process_grid.weight_colour(world.rank()), world.rank(), "model");
  for (const layout::AxisTraits& traits : layout::axis_table)
    axes_[traits.axis] = along(traits.splits_weights ? *model_ : world, traits.axis);
  if (process_grid.size(Axis::context) > 1)
    replicas_ = world.split(process_grid.replica_colour(world.rank()), world.rank(), "replicas");
  const int at = process_grid.position(Axis::pipeline, world.rank());
  const Rank first = stages.rank_of(0), last = stages.rank_of(stages.last_stage());
  const bool end = at == first || at == last;
  embedding_ = first == last
                   ? Communicator::alone("embedding")
                   : communicator(Axis::pipeline).split(end ? first : at, at, "embedding");
}

std::unique_ptr<Communicator> Grid::along(Communicator& larger, Axis axis) const {
  const std::string name(name_of(axis));
  if (process_grid_.size(axis) == 1) return Communicator::alone(name);
  return larger.split(process_grid_.colour(axis, world_.rank()),
                      process_grid_.position(axis, world_.rank()), name);
}

Communicator& Grid::replicas() {
  return replicas_ ? *replicas_ : communicator(Axis::data);
}

Communicator& Grid::part_of_replicas(const std::string& name, int ranks) {
  std::unique_ptr<Communicator>& group = others_[name];
  if (!group) {
    Communicator& all = replicas();
    group =
        ranks == 1 ? Communicator::alone(name) : all.split(all.rank() / ranks, all.rank(), name);
    if (factory_ && group->size() > 1) group->use(factory_(*group));
  }
  return *group;
}

Communicator& Grid::shard_group(int ranks) {
  return ranks == replicas().size() ? replicas() : part_of_replicas("shard group", ranks);
}

Communicator& Grid::experts(int ranks) {
  return part_of_replicas("experts", ranks);
}

Communicator& Grid::with_same_experts(Communicator& among, int ranks) {
  if (ranks == 1) return among;
  std::unique_ptr<Communicator>& group = others_[among.name() + " with the same experts"];
  if (!group) {
    group =
        among.split(among.rank() % ranks, among.rank(), among.name() + " with the same experts");
    if (factory_ && group->size() > 1) group->use(factory_(*group));
  }
  return *group;
}

Communicator& Grid::part_of_tensor_axis(const std::string& name, int colour) {
  std::unique_ptr<Communicator>& part = parts_[name];
  if (!part) {
    Communicator& tensor = communicator(Axis::tensor);
    part = tensor.split(colour, tensor.rank(), name);
    if (factory_ && part->size() > 1) part->use(factory_(*part));
  }
  return *part;
}

Communicator& Grid::another(Axis axis, const std::string& name) {
  std::unique_ptr<Communicator>& other = others_[name];
  if (!other) {
    Communicator& ranks = communicator(axis);
    other = ranks.split(0, ranks.rank(), name);
    if (factory_ && other->size() > 1) other->use(factory_(*other));
  }
  return *other;
}

Grid& Grid::equal_part(int parts) {
  if (parts == 1) return *this;
  if (part_) return *part_;
  const int positions = process_grid_.size(Axis::data) / parts;
  check(positions * parts == process_grid_.size(Axis::data), "a data axis of ",
        process_grid_.size(Axis::data), " ranks has no ", parts, " equal parts");
  // Ranks keep their order, so that the part is a grid with the same order of axes.
  const int mine = process_grid_.position(Axis::data, world_.rank()) / positions;
  part_world_ = world_.split(mine, world_.rank(), "part of the data axis");
  auto axes = process_grid_.axes().axes();
  for (layout::AxisSize& axis : axes)
    if (axis.axis == Axis::data) axis.size = positions;
  part_ = std::make_unique<Grid>(
      *part_world_, layout::ProcessGrid(layout::AxisList(axes), part_world_->size()), stages_);
  if (factory_) part_->use_transports(factory_);
  return *part_;
}

Communicator& Grid::across_parts(int parts) {
  std::unique_ptr<Communicator>& others = others_["across the parts"];
  if (!others) {
    others = parts == 1 ? Communicator::alone("workers")
                        : world_.split(equal_part(parts).world().rank(), world_.rank(), "workers");
    if (factory_ && others->size() > 1) others->use(factory_(*others));
  }
  return *others;
}

Communicator& Grid::part_of_data_axis(int first) {
  std::unique_ptr<Communicator>& part = others_["part of data"];
  if (!part) {
    Communicator& data = communicator(Axis::data);
    part = data.split(data.rank() < first ? 0 : 1, data.rank(), "part of data");
    if (factory_ && part->size() > 1) part->use(factory_(*part));
  }
  return *part;
}

Communicator& Grid::data_messages(const std::string& name) {
  std::unique_ptr<Communicator>& ranks = by_mpi_[name];
  if (!ranks) ranks = communicator(Axis::data).split(0, communicator(Axis::data).rank(), name);
  return *ranks;
}

Communicator& Grid::world_messages(const std::string& name) {
  std::unique_ptr<Communicator>& ranks = by_mpi_[name];
  if (!ranks) ranks = world_.split(0, world_.rank(), name);
  return *ranks;
}

void Grid::use_transports(const TransportFactory& factory) {
  factory_ = factory;
  const auto give = [&](Communicator& communicator) {
    if (communicator.size() > 1) communicator.use(factory(communicator));
  };
  give(*model_);
  for (const layout::AxisTraits& traits : layout::axis_table) give(communicator(traits.axis));
  if (replicas_) give(*replicas_);
  give(*embedding_);
  for (const auto& [name, part] : parts_) give(*part);
  for (const auto& [name, other] : others_) give(*other);
}

}  // namespace trireme::grid
