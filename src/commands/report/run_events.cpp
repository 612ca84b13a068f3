// Reads events.jsonl back into the structs of base/events.hpp and derives the history of a run.
#include <trireme/commands/report/run_events.hpp>

#include <trireme/base/text.hpp>
#include <trireme/commands/report/json_lines.hpp>

#include <algorithm>
#include <tuple>
#include <type_traits>

namespace trireme::commands {
namespace {

using Json = nlohmann::json;

void take(const JsonLine& line, const char* key, std::string& value) {
  value = line.string(key);
}
void take(const JsonLine& line, const char* key, std::int64_t& value) {
  value = line.whole(key);
}
void take(const JsonLine& line, const char* key, double& value) {
  value = line.real(key);
}
void take(const JsonLine& line, const char* key, bool& value) {
  value = line.boolean(key);
}
void take(const JsonLine& line, const char* key, events::StopCause& value) {
  const std::string word = line.string(key);
  const auto cause = parse<events::StopCause>(word);
  if (!cause) {
    std::vector<std::string> known;
    for (const std::string_view one : names<events::StopCause>()) known.emplace_back(one);
    line.fail(text("\"", key, "\" is \"", word, "\", expected one of ", join(known, ", ")));
  }
  value = *cause;
}
template <class T>
void take(const JsonLine& line, const char* key, std::optional<T>& value) {
  if (line.json.contains(key)) take(line, key, value.emplace());
}
template <class T>
void take(const JsonLine& line, const char* key, std::vector<T>& value) {
  const Json& list = line.at(key);
  constexpr bool numbers = std::is_same_v<T, std::int64_t>;
  const bool good = list.is_array() && std::ranges::all_of(list, [](const Json& one) {
                      return numbers ? one.is_number_integer() : one.is_string();
                    });
  if (!good)
    line.fail(text("\"", key, "\" is ", shown(list), ", expected a list of ",
                   numbers ? "whole numbers" : "strings"));
  value = list.get<std::vector<T>>();
}

template <class E>
E read_as(const JsonLine& line) {
  E event;
  std::apply([&](const auto&... field) { (take(line, field.first, event.*field.second), ...); },
             E::fields);
  return event;
}

/// The event with this name; std::nullopt for names unknown to this version.
template <class... E>
std::optional<events::Event> event_of(const std::string& name, const JsonLine& line,
                                      std::variant<E...>*) {
  std::optional<events::Event> found;
  ((name == E::name ? void(found = read_as<E>(line)) : void()), ...);
  return found;
}

Seconds seconds_between(Utc from, Utc to) {
  return std::max(0.0, std::chrono::duration<Seconds>(to - from).count());
}

std::optional<Utc> time_in(const std::optional<std::string>& text) {
  return text ? parse_utc(*text) : std::nullopt;
}

class Historian {
 public:
  void read(const RunEvent& entry) {
    if (const auto* start = std::get_if<events::Start>(&entry.event)) {
      history_.jobs.push_back({});
      RunJob& job = history_.jobs.back();
      job.start = *start;
      job.began = entry.time;
      messages_before_ = std::ssize(history_.messages);
    }
    if (history_.jobs.empty()) return;  // the beginning of the file is lost
    RunJob& job = history_.jobs.back();
    job.seen = entry.time;
    std::visit([&](const auto& event) { take(job, entry, event); }, entry.event);
  }

  RunHistory result(std::int64_t last_step, std::optional<Utc> last_time) && {
    std::vector<RunJob>& jobs = history_.jobs;
    if (RunJob* job = last_trained(); job && !job->end && !job->stop)
      see(*job, last_step, last_time);
    for (std::size_t i = 1; i < jobs.size(); ++i)
      jobs[i].waited = seconds_between(jobs[i - 1].seen, jobs[i].began);
    return std::move(history_);
  }

 private:
  void take(RunJob&, const RunEvent&, const events::Start&) {}
  void take(RunJob&, const RunEvent&, const events::Layout&) {}
  void take(RunJob&, const RunEvent&, const events::Data&) {}
  void take(RunJob& job, const RunEvent&, const events::Ranks& event) { job.ranks = event; }
  void take(RunJob& job, const RunEvent&, const events::Devices& event) { job.devices = event; }
  void take(RunJob& job, const RunEvent& entry, const events::Restart& event) {
    job.restart = event;
    job.restored = entry.step;
  }
  void take(RunJob& job, const RunEvent& entry, const events::Checkpoint& event) {
    job.last_step = std::max(job.last_step, entry.step);
    history_.checkpoints.push_back({entry.step, event});
  }
  void take(RunJob& job, const RunEvent& entry, const events::SkippedStep& event) {
    job.last_step = std::max(job.last_step, entry.step);
    history_.skipped.push_back({entry.step, event});
  }
  void take(RunJob&, const RunEvent& entry, const events::Warning& event) {
    history_.messages.push_back({entry.time, "warning: " + event.message});
  }
  void take(RunJob&, const RunEvent& entry, const events::Audit& event) {
    history_.messages.push_back(
        {entry.time, text("audit of step ", entry.step, ": rank ", event.rank, " on ", event.host,
                          event.certain ? " has " : " possibly has ", event.found,
                          event.repaired ? "; repaired" : "")});
  }
  void take(RunJob& job, const RunEvent& entry, const events::Stop& event) {
    if (job.stop) return;  // the first stop is the cause
    job.stop = event;
    ended(job, entry);
    if (event.message) history_.messages.push_back({entry.time, "error: " + *event.message});
  }
  void take(RunJob& job, const RunEvent& entry, const events::End& event) {
    job.end = event;
    ended(job, entry);
  }
  void ended(RunJob& job, const RunEvent& entry) const {
    if (job.training && entry.step > job.restored)
      job.last_step = std::max(job.last_step, entry.step);
  }

  /// A job undoes the steps after the step from which it trains. A job that trains from step 0
  /// begins a new run.
  void take(RunJob& job, const RunEvent& entry, const events::Training& event) {
    const std::int64_t restored = entry.step;
    if (restored > 0) {
      if (RunJob* before = last_trained())
        see(*before, event.logged_step.value_or(0), time_in(event.logged_time));
      job.run_again = std::max<std::int64_t>(0, event.logged_step.value_or(0) - restored);
      if (const auto kept = time_in(event.kept_time)) job.lost = seconds_between(*kept, entry.time);
    }
    std::erase_if(history_.skipped, [&](const auto& s) { return s.step > restored; });
    std::erase_if(history_.checkpoints, [&](const auto& c) { return c.step > restored; });
    if (restored == 0) begin_run();
    history_.jobs.back().training = event;
    history_.jobs.back().trained = entry.time;
  }

  /// Makes the current job the first job of its run.
  void begin_run() {
    if (last_trained() != nullptr) ++history_.earlier_runs;
    history_.jobs.erase(history_.jobs.begin(), history_.jobs.end() - 1);
    history_.messages.erase(history_.messages.begin(),
                            history_.messages.begin() + messages_before_);
    messages_before_ = 0;
  }

  RunJob* last_trained() {
    const auto found = std::find_if(history_.jobs.rbegin(), history_.jobs.rend(),
                                    [](const RunJob& job) { return job.training.has_value(); });
    return found == history_.jobs.rend() ? nullptr : &*found;
  }

  /// Updates the last step and the last time of a job by values from the metrics.
  static void see(RunJob& job, std::int64_t step, std::optional<Utc> time) {
    if (step > job.restored) job.last_step = std::max(job.last_step, step);
    if (time) job.seen = std::max(job.seen, *time);
  }

  RunHistory history_;
  std::ptrdiff_t messages_before_ = 0;  ///< number of messages of earlier jobs
};

}  // namespace

RunEvents read_events(const std::string& path) {
  RunEvents found;
  found.torn = read_json_lines(path, [&](const JsonLine& line) {
    const std::string name = line.string("event");
    const std::string time = line.string("time");
    const auto at = parse_utc(time);
    if (!at)
      line.fail(text("\"time\" is \"", time, "\", expected UTC such as 2026-11-22T20:20:23.045Z"));
    const std::int64_t step = line.whole("step");
    if (auto event = event_of(name, line, static_cast<events::Event*>(nullptr)))
      found.events.push_back({*at, step, std::move(*event)});
  });
  return found;
}

int RunHistory::restarts() const {
  return static_cast<int>(std::ranges::count_if(
      jobs, [](const RunJob& job) { return job.training && job.restored > 0; }));
}

std::int64_t RunHistory::run_again() const {
  std::int64_t sum = 0;
  for (const RunJob& job : jobs) sum += job.run_again;
  return sum;
}

Seconds RunHistory::waited() const {
  Seconds sum = 0;
  for (const RunJob& job : jobs) sum += job.waited;
  return sum;
}

Seconds RunHistory::lost() const {
  Seconds sum = 0;
  for (const RunJob& job : jobs) sum += job.lost.value_or(0);
  return sum;
}

RunHistory run_history(const std::vector<RunEvent>& events, std::int64_t last_step,
                       std::optional<Utc> last_time) {
  Historian historian;
  for (const RunEvent& event : events) historian.read(event);
  return std::move(historian).result(last_step, last_time);
}

std::vector<JobUsage> read_used_parts(const std::string& path) {
  std::vector<JobUsage> parts;
  read_json_lines(path, [&](const JsonLine& line) {
    const std::string time = line.string("time");
    const auto ended = parse_utc(time);
    if (!ended)
      line.fail(text("\"time\" is \"", time, "\", expected UTC such as 2026-11-22T20:20:23.045Z"));
    parts.push_back({*ended, line.whole("nodes"), line.real("seconds"), line.maybe("joules")});
  });
  return parts;
}

std::optional<RunUsage> run_usage(const RunHistory& history, const std::vector<JobUsage>& parts) {
  // The job script counts whole seconds, and begins to count a little late.
  constexpr Seconds rounding = 2;
  RunUsage usage;
  std::vector<bool> counted(parts.size(), false);
  bool batch = false;
  for (const RunJob& job : history.jobs) {
    const auto part = std::ranges::find_if(parts, [&](const JobUsage& one) {
      return job.began <= one.ended &&
             seconds_between(job.began, one.ended) <= one.seconds + rounding;
    });
    batch = batch || job.start.job || part != parts.end();
    if (part == parts.end()) {
      ++usage.parts;
      if (job.ranks)
        usage.node_hours += static_cast<double>(job.ranks->hosts.size()) *
                            seconds_between(job.began, job.seen) / 3600;
    } else {
      counted[static_cast<std::size_t>(part - parts.begin())] = true;
    }
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!counted[i]) continue;
    ++usage.parts;
    usage.node_hours += static_cast<double>(parts[i].nodes) * parts[i].seconds / 3600;
    usage.measured += parts[i].joules ? 1 : 0;
    usage.joules += parts[i].joules.value_or(0);
  }
  return batch ? std::optional(usage) : std::nullopt;
}

}  // namespace trireme::commands
