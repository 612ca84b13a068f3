// The report's section on jobs, the cost of restarts, and warnings.
#include <trireme/base/text.hpp>
#include <trireme/commands/report/markup.hpp>
#include <trireme/commands/report/run_report.hpp>

#include <algorithm>

namespace trireme::commands {
namespace {

using Rows = std::vector<std::vector<std::string>>;

/// "2026-11-22 20:20:23"
std::string date(Utc time) {
  std::string text = to_text(time).substr(0, 19);
  text[10] = ' ';
  return text;
}

std::string cause_of(const events::Stop& stop) {
  switch (stop.cause) {
    case events::StopCause::time_limit:
      return "stopped: time limit";
    case events::StopCause::signal:
      return "stopped: signal";
    case events::StopCause::stop_file:
      return "stopped: stop file";
    case events::StopCause::not_finite:
      return "failed: loss not finite";
    case events::StopCause::watchdog:
      return "failed: watchdog";
    case events::StopCause::audit:
      return "failed: audit";
    case events::StopCause::error:
      return stop.exit_code == 2 ? "refused" : "failed";
  }
  return "";
}

std::string machine_of(const RunJob& job) {
  const events::Start& s = job.start;
  std::string out = text(s.ranks, s.ranks == 1 ? " rank" : " ranks", ": data ", s.data,
                         " · pipeline ", s.pipeline, " · tensor ", s.tensor);
  if (job.ranks) {
    const events::Ranks& r = *job.ranks;
    out += r.hosts.size() == 1 ? text(", on ", r.hosts.front())
                               : text(", on ", r.hosts.size(), " hosts");
    out += text(", Kokkos ", r.kokkos, " ", r.execution_space,
                r.threads > 1 ? text(" (threads per rank: ", r.threads, ")") : "", ", ", r.mpi);
  }
  if (job.devices) out += ", " + job.devices->products;
  return out + ", Trireme " + s.version;
}

/// The machines of the jobs, with measured peaks; consecutive equal machines share a line.
std::string machines(const std::vector<RunJob>& jobs) {
  std::string out = "<dl class=\"facts\">\n";
  for (std::size_t first = 0, end = 0; first < jobs.size(); first = end) {
    double low = 0;
    double high = 0;
    const std::string machine = machine_of(jobs[first]);
    for (end = first; end < jobs.size() && machine_of(jobs[end]) == machine; ++end)
      if (jobs[end].training) {
        const double peak = jobs[end].training->peak_flops / 1e9;
        low = high == 0 ? peak : std::min(low, peak);
        high = std::max(high, peak);
      }
    const std::string peaks =
        fixed(low, 1) + (fixed(low, 1) == fixed(high, 1) ? "" : " to " + fixed(high, 1));
    out += text(
        "<dt>", end == first + 1 ? text("Job ", end) : text("Jobs ", first + 1, " to ", end),
        "</dt><dd>", escaped(machine),
        high > 0 ? text("; matrix-product peak of all ranks ", peaks, " GFLOP/s") : "", "</dd>\n");
  }
  return out + "</dl>\n";
}

/// The steps of a job: "539 to 1,000", "none after 538" or "no step".
std::string steps_of(const RunJob& job) {
  if (!job.training) return "no step";
  if (job.last_step <= job.restored) return text("none after ", with_commas(job.restored));
  return text(with_commas(job.restored + 1), " to ", with_commas(job.last_step));
}

std::string messages(const RunHistory& history) {
  if (history.messages.empty()) return "";
  constexpr std::size_t most = 50;
  const auto& all = history.messages;
  Rows lines;
  for (std::size_t i = all.size() - std::min(all.size(), most); i < all.size(); ++i)
    lines.push_back({date(all[i].time), all[i].words});
  return html_table(all.size() > most
                        ? text("The last ", most, " of ", all.size(), " warnings and errors")
                        : "Warnings and errors",
                    {"Time (UTC)", "Message"}, lines, 2);
}

}  // namespace

std::string end_of_job(const RunHistory& history, std::size_t number) {
  const RunJob& job = history.jobs[number];
  if (job.end) return "finished";
  if (job.stop)
    return text(cause_of(*job.stop), job.last_step > 0 ? text(" after step ", job.last_step) : "",
                " (exit code ", job.stop->exit_code, ")");
  return number + 1 == history.jobs.size() ? "runs or was killed" : "was killed";
}

std::string report_jobs(const RunReport& report) {
  if (!report.history) return "<p>Not known, because the run has no events.jsonl.</p>\n";
  const RunHistory& history = *report.history;
  if (history.jobs.empty()) return "<p>events.jsonl holds no job.</p>\n";
  Rows rows;
  for (std::size_t i = 0; i < history.jobs.size(); ++i) {
    const RunJob& job = history.jobs[i];
    const bool over = job.end || job.stop || i + 1 < history.jobs.size();
    rows.push_back({text(i + 1, job.start.job ? " (" + *job.start.job + ")" : ""), date(job.began),
                    text(date(job.seen), over ? "" : ", last seen"), end_of_job(history, i),
                    steps_of(job), i == 0 ? "" : human_seconds(job.waited),
                    job.restored > 0 ? with_commas(job.run_again) : "",
                    job.lost ? human_seconds(*job.lost) : ""});
  }
  return "<div class=\"stacked\">" +
         html_table("Jobs of this run; times in hours, minutes and seconds",
                    {"Job", "Start (UTC)", "Until (UTC)", "End", "Steps", "Waited",
                     "Steps repeated", "Lost to the restart"},
                    rows, 4) +
         "</div><p class=\"soft\">Waited: from the end of the job before to this job's start. Lost "
         "to the restart: from the metrics line of the checkpoint's step to this job's first step; "
         "it includes the wait.</p>\n<h3>Machines</h3>\n" +
         machines(history.jobs) + messages(history);
}

}  // namespace trireme::commands
