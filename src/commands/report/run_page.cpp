// The HTML page of a report: figures, charts, jobs, checkpoints, layout, timelines and the deck.
#include <trireme/base/text.hpp>
#include <trireme/commands/report/markup.hpp>
#include <trireme/commands/report/run_report.hpp>
#include <trireme/commands/report/ticks.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::commands {
namespace {

using Steps = std::vector<train::Metrics>;
using Rows = std::vector<std::vector<std::string>>;

template <class Value>
double median(const Steps& steps, Value value) {
  std::vector<double> values;
  for (const train::Metrics& m : steps)
    if (std::isfinite(value(m))) values.push_back(value(m));
  if (values.empty()) return std::nan("");
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

const train::Metrics* best_validation(const Steps& steps) {
  const train::Metrics* best = nullptr;
  for (const train::Metrics& m : steps)
    if (m.validation_loss && std::isfinite(*m.validation_loss) &&
        (!best || *m.validation_loss < *best->validation_loss))
      best = &m;
  return best;
}

/// Time in steps, without checkpoints and evaluations.
Seconds time_in_steps(const Steps& steps) {
  Seconds sum = 0;
  std::int64_t before = 0;
  for (const train::Metrics& m : steps) {
    if (std::isfinite(m.step_seconds)) sum += static_cast<double>(m.step - before) * m.step_seconds;
    before = m.step;
  }
  return sum;
}

class Figures {
 public:
  void add(const std::string& name, const std::string& value, const std::string& more = "") {
    out_ += text("<div><dt>", escaped(name), "</dt><dd>", escaped(value),
                 more.empty() ? "" : text("<small>", escaped(more), "</small>"), "</dd></div>\n");
  }
  std::string all() const { return "<dl class=\"figures\">\n" + out_ + "</dl>\n"; }

 private:
  std::string out_;
};

std::string at_step(std::int64_t step) {
  return "at step " + with_commas(step);
}

std::string figures(const RunReport& report) {
  const Steps& steps = report.records.steps;
  if (steps.empty()) return "";
  const train::Metrics& last = steps.back();
  const std::int64_t all = report.deck.config.run.steps;
  Figures figures;
  figures.add("Steps", with_commas(last.step), "of " + with_commas(all));
  figures.add("Loss", short_number(last.loss, 5), at_step(last.step));
  if (const train::Metrics* best = best_validation(steps))
    figures.add("Best validation loss", short_number(*best->validation_loss, 5),
                text(at_step(best->step),
                     best->bits_per_byte
                         ? text(", ", short_number(*best->bits_per_byte, 5), " bits per byte")
                         : ""));
  else
    figures.add("Best validation loss", "none", "no evaluation");
  figures.add("Tokens", with_commas(last.tokens), "trained on");
  figures.add("Tokens per second",
              short_number(median(steps, [](const auto& m) { return m.tokens_per_second; }), 4),
              "median");
  figures.add(
      "MFU",
      short_number(100 * median(steps, [](const auto& m) { return m.flops_utilization; }), 3) +
          " %",
      "median, of the measured peak");
  Bytes peak = 0;
  for (const auto& m : steps) peak = std::max(peak, m.peak_bytes);
  figures.add("Peak memory", peak > 0 ? human_bytes(peak) : "not known", "of a rank");
  figures.add("Time in steps", human_seconds(time_in_steps(steps)),
              "without evaluations and checkpoints");
  figures.add("Skipped steps", with_commas(last.skipped_steps), "not finite");
  if (!report.history) {
    figures.add("Restarts", "not known", "no events.jsonl");
    return figures.all();
  }
  const RunHistory& history = *report.history;
  figures.add("Restarts", text(history.restarts()), "from a checkpoint");
  if (history.jobs.size() > 1)
    figures.add("Waited", human_seconds(history.waited()), "between jobs");
  if (history.restarts() > 0)
    figures.add("Lost to restarts", human_seconds(history.lost()),
                text(with_commas(history.run_again()),
                     history.run_again() == 1 ? " step" : " steps", " run again"));
  return figures.all();
}

std::string state(const RunReport& report) {
  const Steps& steps = report.records.steps;
  if (!steps.empty() && steps.back().step >= report.deck.config.run.steps)
    return "<p class=\"state\">Finished</p>\n";
  std::string words = "Not finished";
  if (report.history && !report.history->jobs.empty())
    words += ": the last job " + end_of_job(*report.history, report.history->jobs.size() - 1);
  return text("<p class=\"state open\">", escaped(words), "</p>\n");
}

std::string notes(const RunReport& report) {
  if (report.notes.empty()) return "";
  std::string out = "<section class=\"notes\" aria-label=\"Notes\"><ul>\n";
  for (const std::string& note : report.notes) out += text("<li>", escaped(note), "</li>\n");
  return out + "</ul></section>\n";
}

std::string skipped(const RunReport& report) {
  const auto all = skipped_steps(report);
  if (all.empty()) return "";
  constexpr std::size_t most = 100;
  Rows rows;
  for (std::size_t i = all.size() - std::min(all.size(), most); i < all.size(); ++i)
    rows.push_back({all[i].words,
                    all[i].first == all[i].last
                        ? with_commas(all[i].first)
                        : text(with_commas(all[i].first), " to ", with_commas(all[i].last)),
                    with_commas(all[i].steps)});
  return "<h2>Skipped steps</h2>\n<div class=\"said\">\n" +
         html_table(text("Steps whose loss or gradient was not finite",
                         all.size() > most ? text("; the last ", most, " of ", all.size()) : ""),
                    {"Last one", "Between steps", "Skipped"}, rows, 1) +
         "</div>\n";
}

std::string checkpoints(const RunReport& report) {
  std::string out = text("<h2>Checkpoints</h2>\n<p class=\"soft\">In ",
                         escaped(report.checkpoint_folder), "</p>\n");
  if (report.checkpoints.empty()) return out + "<p>None.</p>\n";
  Rows rows;
  for (const SavedModel& c : report.checkpoints)
    rows.push_back({c.name, c.damage.empty() ? c.layout : "cannot be read: " + c.damage,
                    with_commas(c.step), c.damage.empty() ? with_commas(c.samples) : "",
                    c.damage.empty() ? human_bytes(c.bytes) : ""});
  return out + html_table("Existing checkpoints, from their manifests",
                          {"Folder", "Written by", "Step", "Samples", "Size"}, rows, 2);
}

std::string earlier(const RunReport& report) {
  if (report.earlier.empty()) return "";
  Rows rows;
  for (const EarlierRun& run : report.earlier) {
    const Steps& steps = run.records.steps;
    const train::Metrics* best = best_validation(steps);
    rows.push_back({run.name, steps.empty() ? "none" : with_commas(steps.back().step),
                    steps.empty() ? "" : short_number(steps.back().loss, 5),
                    best ? short_number(*best->validation_loss, 5) : ""});
  }
  return "<h2>Earlier runs in this folder</h2>\n" +
         html_table("Earlier runs that started at step 1 in this folder",
                    {"Metrics", "Last step", "Last loss", "Best validation loss"}, rows, 1);
}

std::string timeline(const RunReport& report) {
  std::string out = text("<h2>Schedule</h2>\n<p>", escaped(report.timeline_words), "</p>\n");
  if (report.timeline_svg.empty()) return out;
  // The drawing has titles on its boxes and a label.
  std::string svg = report.timeline_svg;
  svg.insert(svg.find(' '), text(" role=\"img\" aria-label=\"Timeline of a step: ",
                                 escaped(report.timeline_words), "\""));
  return text(out, "<figure class=\"timeline\">", svg, "</figure>\n");
}

}  // namespace

std::string report_page(const RunReport& report) {
  const std::string title = escaped(report.folder);
  return text(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
      title, " – Trireme</title>\n<style>", report_style(), "</style>\n</head>\n<body>\n<header>\n",
      "<h1>", title, "</h1>\n", report_headline(report), state(report), "</header>\n<main>\n",
      figures(report), notes(report), "<h2>Progress</h2>\n", report_charts(report),
      "<h2>Jobs and restarts</h2>\n", report_jobs(report), skipped(report), checkpoints(report),
      earlier(report), report_layout(report), timeline(report),
      "<h2>Deck, as resolved</h2>\n<pre tabindex=\"0\">", escaped(report.deck_toml),
      "</pre>\n</main>\n</body>\n</html>\n");
}

}  // namespace trireme::commands
