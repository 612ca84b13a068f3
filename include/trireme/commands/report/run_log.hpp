#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace trireme::commands {

/// One job of a run, as it wrote itself into log.txt.
struct LogPart {
  std::string machine;                   ///< "2 ranks, Kokkos …"
  std::string peak;                      ///< "210.6 GFLOP/s (…)"; "": it came to no step
  std::string from;                      ///< the checkpoint it went on from; "": none
  std::optional<std::int64_t> restored;  ///< the step of that checkpoint
  std::int64_t last_step = 0;            ///< logged; 0: none
  std::string end;                       ///< how it ended; "": the log does not say
  bool finished = false;
};

struct LoggedStep {
  std::int64_t step = 0;
  std::string words;
};

/// What log.txt tells of the run whose metrics.jsonl lies beside it. Jobs append to the log: a
/// job that trained and was not restarted from a checkpoint begins another run.
struct RunLog {
  std::vector<LogPart> parts;
  std::vector<LoggedStep> skipped;      ///< those that no restart has undone
  std::vector<LoggedStep> checkpoints;  ///< written, the later removed ones too
  std::vector<std::string> messages;    ///< warnings and errors
  int earlier_runs = 0;

  /// Jobs that trained on from a checkpoint.
  int restarts() const;
};

RunLog read_run_log(std::istream& in);

}  // namespace trireme::commands
