#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/base/events.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::commands {

/// A line of events.jsonl.
struct RunEvent {
  Utc time;
  std::int64_t step = 0;
  events::Event event;
};

struct RunEvents {
  std::vector<RunEvent> events;  ///< in the order of the file, without unknown events
  bool torn = false;             ///< the last line is incomplete and was ignored
};

/// Reads events.jsonl. UsageError with file, line and remedy for a damaged line.
RunEvents read_events(const std::string& path);

/// One job of a run.
struct RunJob {
  events::Start start;
  Utc began;
  Utc seen;  ///< time of the job's last event, or of a later line of the metrics
  std::optional<events::Ranks> ranks;
  std::optional<events::Devices> devices;
  std::optional<events::Restart> restart;
  std::int64_t restored = 0;  ///< step of the checkpoint from which the job continued; 0: none
  std::optional<events::Training> training;
  Utc trained = {};            ///< beginning of the job's first step, if `training` is set
  std::int64_t last_step = 0;  ///< last step that the job is known to have completed; 0: none
  std::optional<events::Stop> stop;
  std::optional<events::End> end;

  Seconds waited = 0;          ///< time from the end of the previous job to the start of this job
  std::int64_t run_again = 0;  ///< steps that earlier jobs had already logged
  /// Time from the metrics line of the checkpoint's step to the first step of this job. Empty
  /// without a restart, or if the time of that line is unknown.
  std::optional<Seconds> lost;
};

template <class E>
struct StepEvent {
  std::int64_t step = 0;
  E event;
};

struct RunMessage {
  Utc time;
  std::string words;  ///< "warning: …", "error: …" or "audit of step …"
};

/// History of the last run in events.jsonl. A job that trains from step 0 begins a new run.
struct RunHistory {
  std::vector<RunJob> jobs;
  /// skipped steps that no restart has undone
  std::vector<StepEvent<events::SkippedStep>> skipped;
  /// checkpoints that no restart has undone
  std::vector<StepEvent<events::Checkpoint>> checkpoints;
  std::vector<RunMessage> messages;
  int earlier_runs = 0;

  /// Number of jobs that continued from a checkpoint.
  int restarts() const;
  std::int64_t run_again() const;  ///< sum over the jobs
  Seconds waited() const;
  Seconds lost() const;
};

/// The history of the last run in `events`. `last_step`, `last_time`: values in the last logged
/// line of metrics.jsonl; 0 and empty if there is no such line.
RunHistory run_history(const std::vector<RunEvent>& events, std::int64_t last_step,
                       std::optional<Utc> last_time);

/// A line of usage.jsonl, which the job script writes after each part of a run.
struct JobUsage {
  Utc ended;
  std::int64_t nodes = 0;
  Seconds seconds = 0;           ///< since the script started
  std::optional<double> joules;  ///< energy of the part's job steps, if Slurm measures it
};

/// Reads usage.jsonl. UsageError with file, line and remedy for a damaged line; an incomplete last
/// line is ignored.
std::vector<JobUsage> read_used_parts(const std::string& path);

/// Node hours and energy of a run. A part is one line of usage.jsonl, or a job without such a line.
struct RunUsage {
  int parts = 0;
  double node_hours = 0;
  int measured = 0;   ///< number of parts whose energy is known
  double joules = 0;  ///< energy of the parts counted in `measured`
};

/// Sums the usage of a run's parts: the lines of `parts` in whose time a job of the run began, and
/// the jobs without such a line. std::nullopt without a batch system.
std::optional<RunUsage> run_usage(const RunHistory& history, const std::vector<JobUsage>& parts);

}  // namespace trireme::commands
