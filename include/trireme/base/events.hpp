#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

/// Machine-readable events of a run: one JSON object per line in events.jsonl (docs/events.md).
/// Each struct below is one event: `name` is the value of "event", and `fields` lists the keys with
/// their members; an empty optional member is not written.
namespace trireme::events {

/// Cause of a job's end before its last step.
enum class StopCause : std::uint8_t {
  time_limit,
  signal,
  stop_file,
  not_finite,  ///< a validation loss was not finite, or too many steps in a row were skipped
  error,
  watchdog,  ///< a rank died, or no rank made progress
  audit      ///< an audit found wrong results
};

/// The first event of a job.
struct Start {
  std::string version;  ///< version of Trireme
  std::string deck;     ///< file name of the deck
  std::int64_t ranks = 0;
  std::int64_t data = 0;
  std::int64_t pipeline = 0;
  std::int64_t tensor = 0;
  std::string schedule;
  std::int64_t steps = 0;          ///< the run's last step
  std::optional<std::string> job;  ///< the scheduler's job id
  /// Dead job from which this job took over the run's folders, and why it counts as dead.
  std::optional<std::string> took_over;

  static constexpr std::string_view name = "start";
  static constexpr auto fields = std::make_tuple(
      std::make_pair("version", &Start::version), std::make_pair("deck", &Start::deck),
      std::make_pair("ranks", &Start::ranks), std::make_pair("data", &Start::data),
      std::make_pair("pipeline", &Start::pipeline), std::make_pair("tensor", &Start::tensor),
      std::make_pair("schedule", &Start::schedule), std::make_pair("steps", &Start::steps),
      std::make_pair("job", &Start::job), std::make_pair("took_over", &Start::took_over));
};

/// The layout that [parallel] layout = "auto" chose for the job.
struct Layout {
  std::int64_t data = 0;
  std::int64_t pipeline = 0;
  std::int64_t tensor = 0;
  std::string order;  ///< order of the axes among the ranks, fastest first
  std::string schedule;
  std::int64_t chunks = 0;       ///< stages per pipeline rank
  std::int64_t micro_batch = 0;  ///< samples of a micro-batch
  bool sequence_parallel = false;
  std::string recompute;
  std::string shard;
  std::int64_t expert = 0;         ///< replicas that divide the experts
  std::vector<std::string> fixed;  ///< full names of the layout keys that the deck sets
  std::string reason;

  static constexpr std::string_view name = "layout";
  static constexpr auto fields = std::make_tuple(
      std::make_pair("data", &Layout::data), std::make_pair("pipeline", &Layout::pipeline),
      std::make_pair("tensor", &Layout::tensor), std::make_pair("order", &Layout::order),
      std::make_pair("schedule", &Layout::schedule), std::make_pair("chunks", &Layout::chunks),
      std::make_pair("micro_batch", &Layout::micro_batch),
      std::make_pair("sequence_parallel", &Layout::sequence_parallel),
      std::make_pair("recompute", &Layout::recompute), std::make_pair("shard", &Layout::shard),
      std::make_pair("expert", &Layout::expert), std::make_pair("fixed", &Layout::fixed),
      std::make_pair("reason", &Layout::reason));
};

/// Hosts and libraries of the ranks.
struct Ranks {
  std::vector<std::string> hosts;  ///< host names, in the order of the hosts' first ranks
  std::vector<std::int64_t> ranks_per_host;
  std::string kokkos;           ///< version of Kokkos
  std::string execution_space;  ///< name of Kokkos' execution space
  std::int64_t threads = 0;     ///< threads per rank
  std::string mpi;

  static constexpr std::string_view name = "ranks";
  static constexpr auto fields = std::make_tuple(
      std::make_pair("hosts", &Ranks::hosts),
      std::make_pair("ranks_per_host", &Ranks::ranks_per_host),
      std::make_pair("kokkos", &Ranks::kokkos),
      std::make_pair("execution_space", &Ranks::execution_space),
      std::make_pair("threads", &Ranks::threads), std::make_pair("mpi", &Ranks::mpi));
};

/// The training data.
struct Data {
  std::string path;  ///< path as in the deck
  std::int64_t files = 0;
  std::int64_t tokens = 0;
  std::optional<std::int64_t> samples_per_epoch;  ///< only if there is one file

  static constexpr std::string_view name = "data";
  static constexpr auto fields =
      std::make_tuple(std::make_pair("path", &Data::path), std::make_pair("files", &Data::files),
                      std::make_pair("tokens", &Data::tokens),
                      std::make_pair("samples_per_epoch", &Data::samples_per_epoch));
};

/// Rank 0's device and the back ends that compute and communicate.
struct Devices {
  std::string device;       ///< device name; "host" if kernels run on the host
  std::string products;     ///< back end of matrix products
  std::string attention;    ///< "portable", or the name of faster kernels
  std::string transport;    ///< "MPI", or name and path of the NCCL library
  Bytes planned_bytes = 0;  ///< size of rank 0's arenas

  static constexpr std::string_view name = "devices";
  static constexpr auto fields = std::make_tuple(
      std::make_pair("device", &Devices::device), std::make_pair("products", &Devices::products),
      std::make_pair("attention", &Devices::attention),
      std::make_pair("transport", &Devices::transport),
      std::make_pair("planned_bytes", &Devices::planned_bytes));
};

/// The job read weights from a checkpoint. The event's step is the checkpoint's step.
struct Restart {
  std::string reason;           ///< end of the previous job: former_end()
  std::string requested;        ///< [checkpoint] restart
  std::string checkpoint;       ///< folder of the checkpoint
  std::string former_layout;    ///< layout of the ranks that wrote the checkpoint
  std::int64_t samples = 0;     ///< samples consumed since the run's first step
  bool optimizer_state = true;  ///< false: the checkpoint holds weights only

  static constexpr std::string_view name = "restart";
  static constexpr auto fields = std::make_tuple(
      std::make_pair("reason", &Restart::reason), std::make_pair("requested", &Restart::requested),
      std::make_pair("checkpoint", &Restart::checkpoint),
      std::make_pair("former_layout", &Restart::former_layout),
      std::make_pair("samples", &Restart::samples),
      std::make_pair("optimizer_state", &Restart::optimizer_state));
};

/// The job is about to begin its first step, which follows the event's step.
struct Training {
  double peak_flops = 0;  ///< measured rate of matrix products of all ranks, FLOP/s
  /// Last step in metrics.jsonl, and its time, before this job removed the steps that it repeats.
  std::optional<std::int64_t> logged_step;
  std::optional<std::string> logged_time;
  /// Time of the last logged step whose line this job kept in metrics.jsonl.
  std::optional<std::string> kept_time;

  static constexpr std::string_view name = "training";
  static constexpr auto fields =
      std::make_tuple(std::make_pair("peak_flops", &Training::peak_flops),
                      std::make_pair("logged_step", &Training::logged_step),
                      std::make_pair("logged_time", &Training::logged_time),
                      std::make_pair("kept_time", &Training::kept_time));
};

/// A checkpoint is complete. The event's step is the checkpoint's step.
struct Checkpoint {
  std::string path;
  Bytes bytes = 0;      ///< size of the shards
  Seconds seconds = 0;  ///< time from the beginning of the copy or write to completion
  bool background = false;
  Seconds waited = 0;  ///< time in which training waited for the checkpoint

  static constexpr std::string_view name = "checkpoint";
  static constexpr auto fields = std::make_tuple(
      std::make_pair("path", &Checkpoint::path), std::make_pair("bytes", &Checkpoint::bytes),
      std::make_pair("seconds", &Checkpoint::seconds),
      std::make_pair("background", &Checkpoint::background),
      std::make_pair("waited", &Checkpoint::waited));
};

/// The update of the event's step was skipped. Recorded at logged steps, for the last step that was
/// skipped since the previous logged step.
struct SkippedStep {
  std::string reason = "not_finite";
  std::optional<std::string> array;  ///< first array whose gradient was not finite
  std::int64_t skipped = 0;          ///< number of skipped steps so far
  std::int64_t in_row = 0;
  std::optional<double> loss_scale_before;  ///< loss scale at the previous logged step
  std::optional<double> loss_scale_after;   ///< loss scale of the next step

  static constexpr std::string_view name = "skipped_step";
  static constexpr auto fields = std::make_tuple(
      std::make_pair("reason", &SkippedStep::reason), std::make_pair("array", &SkippedStep::array),
      std::make_pair("skipped", &SkippedStep::skipped),
      std::make_pair("in_row", &SkippedStep::in_row),
      std::make_pair("loss_scale_before", &SkippedStep::loss_scale_before),
      std::make_pair("loss_scale_after", &SkippedStep::loss_scale_after));
};

/// An audit found a rank with wrong results. The event's step is the audited step.
struct Audit {
  std::int64_t rank = 0;
  std::string host;
  std::string device;  ///< "" where kernels run on the host
  std::string found;
  bool certain = true;  ///< false: this rank or another reported rank is wrong
  bool repaired = false;

  static constexpr std::string_view name = "audit";
  static constexpr auto fields = std::make_tuple(
      std::make_pair("rank", &Audit::rank), std::make_pair("host", &Audit::host),
      std::make_pair("device", &Audit::device), std::make_pair("found", &Audit::found),
      std::make_pair("certain", &Audit::certain), std::make_pair("repaired", &Audit::repaired));
};

struct Warning {
  std::string message;

  static constexpr std::string_view name = "warning";
  static constexpr auto fields = std::make_tuple(std::make_pair("message", &Warning::message));
};

/// The job ends before its last step.
struct Stop {
  StopCause cause = StopCause::error;
  std::int64_t exit_code = 0;
  std::optional<std::string> message;  ///< error message

  static constexpr std::string_view name = "stop";
  static constexpr auto fields = std::make_tuple(std::make_pair("cause", &Stop::cause),
                                                 std::make_pair("exit_code", &Stop::exit_code),
                                                 std::make_pair("message", &Stop::message));
};

/// The last step is done and saved.
struct End {
  std::int64_t steps = 0;           ///< steps of this job
  Seconds seconds = 0;              ///< time since the job's first step began
  std::optional<Bytes> peak_bytes;  ///< largest resident host memory of a rank, if known

  static constexpr std::string_view name = "end";
  static constexpr auto fields = std::make_tuple(std::make_pair("steps", &End::steps),
                                                 std::make_pair("seconds", &End::seconds),
                                                 std::make_pair("peak_bytes", &End::peak_bytes));
};

using Event = std::variant<Start, Layout, Ranks, Data, Devices, Restart, Training, Checkpoint,
                           SkippedStep, Audit, Warning, Stop, End>;

/// {"time":"2026-11-22T20:20:23.045Z","step":200,"event":"checkpoint",…}. Numbers that are not
/// finite become null, and bytes that are not UTF-8 become U+FFFD.
std::string to_json(const Event& event, std::string_view time, std::int64_t step);

/// Sets the file to which this process appends its later events; "": none. One process of a job
/// passes `all`: it repairs an incomplete last line and writes every event; Error if the file
/// cannot be read or written. The other processes write only a Stop with the cause `error` or
/// `watchdog`.
void set_file(const std::string& path, bool all);

/// End of the previous job in the file: the name of a StopCause, "finished", "killed" (the job
/// wrote neither stop nor end) or "unknown".
std::string former_end();

/// Sets the last completed step. Events that are recorded without a step get this step.
void set_step(std::int64_t step);

/// Appends the event to the file of set_file() as one whole line. Of several Stop events, a process
/// writes at most the first. If a line cannot be written, the run continues with a warning.
/// Thread-safe.
void record(const Event& event, std::optional<std::int64_t> step = std::nullopt);

EnumWords enum_words(StopCause);

}  // namespace trireme::events
