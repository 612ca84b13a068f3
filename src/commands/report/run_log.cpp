#include <trireme/commands/report/run_log.hpp>

#include <algorithm>
#include <charconv>
#include <istream>
#include <string_view>

namespace trireme::commands {
namespace {

/// Takes `head` off the front, if it is there.
bool take(std::string_view& line, std::string_view head) {
  if (!line.starts_with(head)) return false;
  line.remove_prefix(head.size());
  return true;
}

std::optional<std::int64_t> take_number(std::string_view& line) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc{}) return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  return value;
}

/// Reads what src/train, src/commands/engine and src/grid say.
class LogReader {
 public:
  void read(std::string_view line) {
    const std::string_view whole = line;
    if (take(line, "trireme: ")) return job_or_message(line, whole);
    if (log_.parts.empty()) return;
    if (take(line, "restarted from ")) return restarted(line);
    if (take(line, "matrix-product peak of all ranks, measured: ")) return trains(line);
    if (take(line, "step ")) return step(line, whole);
    if (take(line, "checkpoint ")) return checkpoint(line);
    LogPart& part = log_.parts.back();
    if (line.starts_with("stopped early behind step ")) {
      part.end = whole.substr(0, whole.find(';'));
    } else if (line.starts_with("peak memory of a rank: ") || line.starts_with("nothing to do: ")) {
      part.end = "finished";
      part.finished = true;
    }
  }

  RunLog result() && { return std::move(log_); }

 private:
  void job_or_message(std::string_view line, std::string_view whole) {
    if (line.starts_with("warning: ") || line.starts_with("error: ")) {
      log_.messages.emplace_back(line);
      if (line.starts_with("error: ") && !log_.parts.empty()) log_.parts.back().end = line;
    } else if (whole.find("Kokkos") != std::string_view::npos) {
      log_.parts.push_back({});
      log_.parts.back().machine = line;
      messages_before_ = std::ssize(log_.messages);
    }
  }

  void restarted(std::string_view line) {
    const std::string_view behind = " behind step ";
    const auto at = line.rfind(behind);
    if (at == std::string_view::npos) return;
    LogPart& part = log_.parts.back();
    part.from = line.substr(0, at);
    line.remove_prefix(at + behind.size());
    part.restored = take_number(line);
  }

  /// A restart undoes what came behind its checkpoint; at step 0 it is a fresh run.
  void trains(std::string_view peak) {
    LogPart& part = log_.parts.back();
    part.peak = peak;
    const std::int64_t restored = part.restored.value_or(0);
    std::erase_if(log_.skipped, [&](const LoggedStep& s) { return s.step > restored; });
    std::erase_if(log_.checkpoints, [&](const LoggedStep& s) { return s.step > restored; });
    if (restored > 0) return;
    const bool trained = std::any_of(log_.parts.begin(), log_.parts.end() - 1,
                                     [](const LogPart& p) { return !p.peak.empty(); });
    if (trained) ++log_.earlier_runs;
    log_.parts.erase(log_.parts.begin(), log_.parts.end() - 1);
    log_.messages.erase(log_.messages.begin(), log_.messages.begin() + messages_before_);
    messages_before_ = 0;
  }

  /// "step   20/100  loss …" or "step 7 was skipped: …".
  void step(std::string_view line, std::string_view whole) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const auto number = take_number(line);
    if (!number) return;
    if (line.starts_with('/')) log_.parts.back().last_step = *number;
    if (line.starts_with(" was skipped: ")) log_.skipped.push_back({*number, std::string(whole)});
  }

  /// "runs/my/checkpoints/step_00000100 (0.3 s …)".
  void checkpoint(std::string_view line) {
    const std::string_view folder = "step_";
    const auto at = line.rfind(folder);
    if (at == std::string_view::npos) return;
    line.remove_prefix(at + folder.size());
    const auto number = take_number(line);
    if (!number || !take(line, " (") || !line.ends_with(')')) return;
    log_.checkpoints.push_back({*number, std::string(line.substr(0, line.size() - 1))});
  }

  RunLog log_;
  std::ptrdiff_t messages_before_ = 0;  ///< those of earlier jobs
};

}  // namespace

int RunLog::restarts() const {
  return static_cast<int>(std::count_if(parts.begin(), parts.end(), [](const LogPart& part) {
    return !part.peak.empty() && part.restored.value_or(0) > 0;
  }));
}

RunLog read_run_log(std::istream& in) {
  LogReader reader;
  for (std::string line; std::getline(in, line);) reader.read(line);
  return std::move(reader).result();
}

}  // namespace trireme::commands
