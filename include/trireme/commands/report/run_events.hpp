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
  std::vector<RunEvent> events;  ///< in the order of the file, without those of unknown names
  bool torn = false;             ///< the last line is incomplete and was ignored
};

/// UsageError with file, line and remedy for a line that docs/events.md does not allow.
RunEvents read_events(const std::string& path);

/// One job of a run.
struct RunJob {
  events::Start start;
  Utc began;
  Utc seen;  ///< time of its last event, or of a later line of the metrics
  std::optional<events::Ranks> ranks;
  std::optional<events::Devices> devices;
  std::optional<events::Restart> restart;
  std::int64_t restored = 0;  ///< the checkpoint's step; 0: none
  std::optional<events::Training> training;
  Utc trained = {};            ///< beginning of its first step, if any
  std::int64_t last_step = 0;  ///< the last one that it is known to have done; 0: none
  std::optional<events::Stop> stop;
  std::optional<events::End> end;

  Seconds waited = 0;          ///< from the end of the job before to its start
  std::int64_t run_again = 0;  ///< steps that the jobs before had logged
  /// From the metrics line of the checkpoint's step to the first step of this job: work that was
  /// lost, the wait, and the start. Nothing without a restart, or if that line is not known.
  std::optional<Seconds> lost;
};

template <class E>
struct StepEvent {
  std::int64_t step = 0;
  E event;
};

struct RunMessage {
  Utc time;
  std::string words;  ///< "warning: …", "error: …"
};

/// The run whose metrics.jsonl is in the same folder. Jobs append their events: a job that trained
/// and was not restarted from a checkpoint begins another run.
struct RunHistory {
  std::vector<RunJob> jobs;
  std::vector<StepEvent<events::SkippedStep>> skipped;     ///< those that no restart has undone
  std::vector<StepEvent<events::Checkpoint>> checkpoints;  ///< written, the later removed ones too
  std::vector<RunMessage> messages;
  int earlier_runs = 0;

  /// Jobs that trained on from a checkpoint.
  int restarts() const;
  std::int64_t run_again() const;  ///< the sum over the jobs
  Seconds waited() const;
  Seconds lost() const;
};

/// `last_step` and `last_time` are those of the last line of metrics.jsonl, 0 and nothing without.
RunHistory run_history(const std::vector<RunEvent>& events, std::int64_t last_step,
                       std::optional<Utc> last_time);

}  // namespace trireme::commands
