// The HTML pages of a run and of a comparison of several runs.
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/commands/report/markup.hpp>
#include <trireme/commands/report/run_report.hpp>
#include <trireme/commands/report/ticks.hpp>
#include <trireme/deck/table.hpp>
#include <trireme/deck/value.hpp>
#include <trireme/io/image_resize.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <span>
#include <utility>

namespace trireme::commands {
namespace {

using Steps = std::vector<train::Metrics>;
using Rows = std::vector<std::vector<std::string>>;

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

std::string energy(double joules) {
  const double kilowatt_hours = joules / 3.6e6;
  if (kilowatt_hours < 1) return short_number(kilowatt_hours * 1e3, 3) + " Wh";
  return kilowatt_hours < 1e3 ? short_number(kilowatt_hours, 3) + " kWh"
                              : short_number(kilowatt_hours / 1e3, 3) + " MWh";
}

std::string figures(const RunReport& report) {
  const RunRecords& records = report.records;
  const Steps& steps = records.steps;
  if (steps.empty()) return "";
  const train::Metrics& last = steps.back();
  const std::int64_t all = report.deck.config.run.steps;
  Figures figures;
  figures.add("Steps", with_commas(last.step), "of " + with_commas(all));
  figures.add("Loss", short_number(last.loss, 5), at_step(last.step));
  if (const train::Metrics* best = best_validation(records))
    figures.add("Best validation loss", short_number(*best->validation_loss, 5),
                text(at_step(best->step),
                     best->bits_per_byte
                         ? text(", ", short_number(*best->bits_per_byte, 5), " bits per byte")
                         : ""));
  else
    figures.add("Best validation loss", "none", "no evaluation");
  figures.add("Tokens", with_commas(last.tokens), "trained on");
  figures.add("Tokens per second",
              short_number(median(records, &train::Metrics::tokens_per_second), 4), "median");
  figures.add("MFU",
              short_number(100 * median(records, &train::Metrics::flops_utilization), 3) + " %",
              "median, of the measured peak");
  Bytes peak = 0;
  for (const auto& m : steps) peak = std::max(peak, m.peak_bytes);
  figures.add("Peak memory", peak > 0 ? human_bytes(peak) : "not known", "of a rank");
  figures.add("Time in steps", human_seconds(time_in_steps(records)),
              "without evaluations and checkpoints");
  figures.add("Skipped steps", with_commas(last.skipped_steps), "not finite");
  if (const auto& usage = report.usage) {
    const std::string parts = text(usage->parts, usage->parts == 1 ? " job" : " jobs");
    figures.add("Node hours", short_number(usage->node_hours, 3), "of " + parts);
    if (usage->measured > 0)
      figures.add("Energy", energy(usage->joules),
                  usage->measured == usage->parts ? "measured by Slurm"
                                                  : text("of ", usage->measured, " of ", parts));
  }
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
  const auto [words, finished] = state_of(report);
  return text("<p class=\"state", finished ? "" : " open", "\">", escaped(words), "</p>\n");
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
  return "<h2>Skipped steps</h2>\n<div class=\"said stacked\">\n" +
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
    const train::Metrics* best = best_validation(run.records);
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
  // Screen readers read the label instead of the shapes of the SVG.
  std::string svg = report.timeline_svg;
  svg.insert(svg.find(' '), text(" role=\"img\" aria-label=\"Timeline of a step: ",
                                 escaped(report.timeline_words), "\""));
  return text(out, "<figure class=\"timeline\">", svg, "</figure>\n");
}

/// The images of prompts: each is a property of CSS, so that its pixels are once in the page.
class PromptImages {
 public:
  /// The element of an image; its path if it cannot be read, or after the first 32 images.
  std::string element(const std::string& path, const std::string& fit) {
    constexpr std::size_t most = 32;
    const auto found = std::ranges::find(known_, std::pair(path, fit));
    const std::size_t number = static_cast<std::size_t>(found - known_.begin());
    const std::string name = escaped(path);
    if (found == known_.end()) {
      const std::string url = known_.size() < most ? url_of(path, fit) : "";
      if (url.empty()) return "[" + name + "] ";
      known_.emplace_back(path, fit);
      style_ += text("--image-", number, ":url(", url, ");");
    }
    return text("<span class=\"image\" style=\"background-image:var(--image-", number,
                ")\" role=\"img\" aria-label=\"", name, "\" title=\"", name, "\"></span>");
  }
  /// The attribute of an element around all images.
  std::string style() const { return style_.empty() ? "" : " style=\"" + style_ + "\""; }

 private:
  /// "" if the file is missing or damaged.
  static std::string url_of(const std::string& path, const std::string& fit) {
    constexpr std::int64_t side = 64;
    const bool known = std::ranges::find(io::image_fit_names, fit) != std::end(io::image_fit_names);
    try {
      return bitmap_url(
          io::fitted(io::read_image(path), side, known ? io::image_fit(fit) : io::ImageFit::pad));
    } catch (const Error&) {
      return "";
    }
  }

  std::vector<std::pair<std::string, std::string>> known_;
  std::string style_;
};

/// Texts by step, the newest first.
std::string texts(const RunReport& report) {
  if (report.texts.empty()) return "";
  constexpr std::size_t most = 100;
  std::vector<GeneratedText> all = report.texts;
  std::ranges::stable_sort(all, std::greater(), &GeneratedText::step);
  Rows rows;
  PromptImages images;
  for (std::size_t i = 0; i < std::min(all.size(), most); ++i) {
    std::string prompt;
    for (const std::string& path : all[i].images) prompt += images.element(path, all[i].image_fit);
    rows.push_back({with_commas(all[i].step), prompt + escaped(all[i].prompt), all[i].words});
  }
  return "<h2>Generated texts</h2>\n<div class=\"texts\"" + images.style() + ">\n" +
         html_table(text("Continued prompts in texts*.jsonl, by step",
                         all.size() > most ? text("; the newest ", most, " of ", all.size()) : ""),
                    {"Step", "Prompt", "Continuation"}, rows, 3, /*marked_up=*/1) +
         "</div>\n";
}

}  // namespace

double median(const RunRecords& records, double train::Metrics::*value) {
  std::vector<double> values;
  for (const train::Metrics& m : records.steps)
    if (std::isfinite(m.*value)) values.push_back(m.*value);
  if (values.empty()) return std::nan("");
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

const train::Metrics* best_validation(const RunRecords& records) {
  const train::Metrics* best = nullptr;
  for (const train::Metrics& m : records.steps)
    if (m.validation_loss && std::isfinite(*m.validation_loss) &&
        (!best || *m.validation_loss < *best->validation_loss))
      best = &m;
  return best;
}

Seconds time_in_steps(const RunRecords& records) {
  Seconds sum = 0;
  std::int64_t before = 0;
  for (const train::Metrics& m : records.steps) {
    if (std::isfinite(m.step_seconds)) sum += static_cast<double>(m.step - before) * m.step_seconds;
    before = m.step;
  }
  return sum;
}

std::pair<std::string, bool> state_of(const RunReport& report) {
  const Steps& steps = report.records.steps;
  if (!steps.empty() && steps.back().step >= report.deck.config.run.steps)
    return {"Finished", true};
  std::string words = "Not finished";
  if (report.history && !report.history->jobs.empty())
    words += ": the last job " + end_of_job(*report.history, report.history->jobs.size() - 1);
  return {words, false};
}

namespace {

std::string page_of(const std::string& title, const std::string& head, const std::string& main) {
  return text(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
      escaped(title), " – Trireme</title>\n<style>", report_style(),
      "</style>\n</head>\n<body>\n<header>\n<h1>", escaped(title), "</h1>\n", head,
      "</header>\n<main>\n", main, "</main>\n<footer class=\"soft\">Written by trireme report, ",
      TRIREME_VERSION, "</footer>\n</body>\n</html>\n");
}

}  // namespace

std::string report_page(const RunReport& report) {
  return page_of(report.folder, report_headline(report) + state(report),
                 text(figures(report), notes(report), "<h2>Progress</h2>\n",
                      report_charts(std::span(&report, 1)), texts(report),
                      "<h2>Jobs and restarts</h2>\n", report_jobs(report), skipped(report),
                      checkpoints(report), earlier(report), report_layout(report), timeline(report),
                      "<h2>Deck, as resolved</h2>\n<pre tabindex=\"0\">", escaped(report.deck_toml),
                      "</pre>\n"));
}

namespace {

/// A row for each key whose values differ, without the keys of the runs' folders.
std::string deck_differences(std::span<const RunReport> runs) {
  std::vector<std::string> head{"Key"};
  for (const RunReport& run : runs) head.push_back(run.folder);
  Rows rows;
  for (const deck::Key& key : deck::keys()) {
    Rows::value_type row{key.full_name()};
    if (row.front() == "run.directory" || row.front() == "checkpoint.directory") continue;
    for (const RunReport& run : runs) row.push_back(deck::literal(key, key.load(run.deck.config)));
    const bool differs = std::ranges::any_of(row.begin() + 1, row.end(),
                                             [&](const std::string& one) { return one != row[1]; });
    if (differs) rows.push_back(std::move(row));
  }
  if (rows.empty()) return "<p>The decks have the same values, except for their folders.</p>\n";
  return "<div class=\"stacked\">" +
         html_table("Keys whose values differ", head, rows, static_cast<int>(head.size())) +
         "</div>";
}

std::string run_table(std::span<const RunReport> runs) {
  Rows rows;
  for (const RunReport& run : runs) {
    const RunRecords& records = run.records;
    const bool any = !records.steps.empty();
    const train::Metrics* best = best_validation(records);
    rows.push_back(
        {run.folder, state_of(run).first, versions_of(run),
         any ? with_commas(records.steps.back().step) : "0",
         any ? with_commas(records.steps.back().tokens) : "0",
         any ? short_number(records.steps.back().loss, 5) : "",
         best ? short_number(*best->validation_loss, 5) : "",
         any ? short_number(median(records, &train::Metrics::tokens_per_second)) : "",
         any ? short_number(100 * median(records, &train::Metrics::flops_utilization), 3) + " %"
             : "",
         human_seconds(time_in_steps(records)),
         run.usage ? short_number(run.usage->node_hours, 3) : "",
         run.usage && run.usage->measured > 0 ? energy(run.usage->joules) : ""});
  }
  return "<div class=\"stacked\">" +
         html_table("The runs; rate and MFU are medians of the logged steps",
                    {"Run", "State", "Trireme", "Steps", "Tokens", "Last loss", "Best validation",
                     "Tokens/s", "MFU", "Time in steps", "Node hours", "Energy"},
                    rows, 3) +
         "</div>";
}

}  // namespace

std::string comparison_page(std::span<const RunReport> runs) {
  RunReport all;
  for (const RunReport& run : runs)
    for (const std::string& note : run.notes) all.notes.push_back(run.folder + ": " + note);
  return page_of(text("Comparison of ", runs.size(), " runs"), "",
                 text(run_table(runs), notes(all), "<h2>Progress</h2>\n", report_charts(runs),
                      "<h2>Differences of the decks</h2>\n", deck_differences(runs)));
}

}  // namespace trireme::commands
