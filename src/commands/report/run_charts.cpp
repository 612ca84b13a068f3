// The charts of a report: loss, learning rate, gradient norm, speed, MFU and memory, with marks
// for restarts, checkpoints and skipped steps.
#include <trireme/architecture/objective.hpp>
#include <trireme/base/text.hpp>
#include <trireme/commands/report/chart.hpp>
#include <trireme/commands/report/markup.hpp>
#include <trireme/commands/report/run_report.hpp>
#include <trireme/commands/report/ticks.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <string_view>

namespace trireme::commands {
namespace {

using Steps = std::vector<train::Metrics>;

constexpr std::size_t most_earlier = 4;  // earlier runs beside this one
constexpr double log_ratio = 30;         // of the gradient's norms, for a logarithmic axis

/// One curve; `value` returns a number, or an optional one if only some steps have it.
template <class Value>
Series series_of(const Steps& steps, const std::string& name, const char* style, Value value) {
  Series series{name, style, {}};
  for (const train::Metrics& m : steps)
    if (const std::optional<double> y = value(m))
      series.points.push_back({static_cast<double>(m.step), *y});
  return series;
}

/// "step 7: loss or gradient not finite, first in the gradient of …; loss scale 65,536 to 32,768"
std::string words_of(const StepEvent<events::SkippedStep>& skipped) {
  const events::SkippedStep& e = skipped.event;
  const auto scale = [](const std::optional<double>& value) -> std::string {
    if (!value) return "not known";
    const bool whole = *value == std::floor(*value) && std::abs(*value) < 1e15;
    return whole ? with_commas(std::llround(*value)) : short_number(*value);
  };
  return text("step ", with_commas(skipped.step), ": loss or gradient not finite",
              e.array ? text(", first in the gradient of ", *e.array) : "",
              e.loss_scale_after ? text("; loss scale ", scale(e.loss_scale_before), " to ",
                                        scale(e.loss_scale_after))
                                 : "");
}

std::vector<Mark> marks_of(const RunReport& report) {
  std::vector<Mark> marks;
  const auto add = [&](MarkKind kind, std::int64_t step, const std::string& words) {
    marks.push_back({kind, static_cast<double>(step), words});
  };
  if (!report.history)
    for (const SavedModel& c : report.checkpoints)
      add(MarkKind::checkpoint, c.step, "checkpoint " + c.name);
  else
    for (const auto& c : report.history->checkpoints)
      add(MarkKind::checkpoint, c.step, text("checkpoint after step ", with_commas(c.step)));
  if (report.history)
    for (const RunJob& job : report.history->jobs)
      if (job.restored > 0 && job.training)
        add(MarkKind::restart, job.restored,
            text("restart after step ", with_commas(job.restored)));
  for (const SkippedSteps& s : skipped_steps(report)) add(MarkKind::skipped, s.last, s.words);
  std::stable_sort(marks.begin(), marks.end(),
                   [](const Mark& a, const Mark& b) { return a.x < b.x; });
  return marks;
}

/// Adds the curves of the last earlier runs as thin lines in the background.
template <class Value>
void add_earlier(std::vector<Series>& series, const RunReport& report, Value value) {
  const std::size_t runs = report.earlier.size();
  for (std::size_t i = runs - std::min(runs, most_earlier); i < runs; ++i) {
    Series earlier = series_of(report.earlier[i].records.steps, "earlier runs", "earlier", value);
    if (!earlier.points.empty()) series.push_back(std::move(earlier));
  }
}

class Charts {
 public:
  explicit Charts(const RunReport& report)
      : report_(report),
        objective_(architecture::objective_of(report.deck.config.model)),
        steps_(report.records.steps),
        marks_(marks_of(report)) {
    last_x_ = static_cast<double>(steps_.back().step);
  }

  std::string all() {
    std::string out = "<div class=\"charts\">\n" + loss();
    const auto add = [&](const std::string& title, const std::string& unit, bool from_zero,
                         const Series& series, bool logarithmic = false) {
      if (!series.points.empty())
        out += chart({series}, {title, unit, logarithmic, from_zero, last_x_, marks_});
    };
    add("Learning rate", "", true, curve([](const auto& m) { return m.learning_rate; }));
    const Series norms = curve([](const auto& m) { return m.gradient_norm; });
    const bool wide = spans(norms);
    add("Gradient norm", wide ? "before clipping, logarithmic" : "before clipping", !wide, norms,
        wide);
    add("Tokens per second", "of all ranks", true,
        curve([](const auto& m) { return m.tokens_per_second; }));
    add("MFU", "% of the measured matrix-product peak", true,
        curve([](const auto& m) { return 100 * m.flops_utilization; }));
    out += memory();
    if (steps_.front().global_batch != steps_.back().global_batch)
      add("Global batch", "samples", true,
          curve([](const auto& m) { return static_cast<double>(m.global_batch); }));
    add("Loss scale", "logarithmic", false, curve([](const auto& m) { return m.loss_scale; }),
        true);
    add("Gradient noise scale", "samples, logarithmic", false,
        curve([](const auto& m) { return m.gradient_noise_scale; }), true);
    add("Bits per byte", "validation", false, curve([](const auto& m) { return m.bits_per_byte; }));
    return out + other_losses() + "</div>\n";
  }

 private:
  template <class Value>
  Series curve(Value value) const {
    return series_of(steps_, "value", "first", value);
  }

  static bool spans(const Series& series) {
    double low = std::numeric_limits<double>::infinity();
    double high = 0;
    for (const Point& p : series.points)
      if (std::isfinite(p.y)) {
        low = std::min(low, p.y);
        high = std::max(high, p.y);
      }
    return low > 0 && high > log_ratio * low;
  }

  std::string both(const std::vector<Series>& series, const std::string& title,
                   const std::string& unit, bool logarithmic) const {
    return chart(series, {title, unit, logarithmic, false, last_x_, marks_});
  }

  /// Two charts, with linear and with logarithmic axis; two buttons select one.
  std::string loss() const {
    // The loss of tokens, like validation_loss. Other terms have separate charts.
    const auto of_tokens = [](const auto& m) {
      double loss = m.loss;
      for (const train::NamedLoss& other : m.other_losses) loss -= other.mean;
      return std::optional<double>(loss);
    };
    std::vector<Series> series{series_of(steps_, "training", "first", of_tokens)};
    Series validation =
        series_of(steps_, "validation", "second", [](const auto& m) { return m.validation_loss; });
    if (!validation.points.empty()) series.push_back(std::move(validation));
    add_earlier(series, report_, of_tokens);
    const std::string unit = text("nats per ", objective_.losses.front().counted);
    return text(
        "<div class=\"scale\"><input type=\"radio\" name=\"scale\" id=\"linear\" "
        "checked=\"checked\"/><label for=\"linear\">linear</label><input type=\"radio\" "
        "name=\"scale\" id=\"logarithmic\"/><label for=\"logarithmic\">logarithmic</label>\n",
        "<div class=\"linear wide\">", both(series, "Loss", unit, false),
        "</div><div class=\"logarithmic wide\">",
        both(series, "Loss", unit + ", logarithmic axis", true), "</div></div>\n");
  }

  /// A chart for each other term of the objective.
  std::string other_losses() const {
    std::string out;
    for (std::size_t i = 1; i < objective_.losses.size(); ++i) {
      const architecture::LossTerm& term = objective_.losses[i];
      const auto mean = [&](const std::vector<train::NamedLoss>& losses) -> std::optional<double> {
        const auto found = std::ranges::find(losses, term.name, &train::NamedLoss::name);
        return found == losses.end() ? std::nullopt : std::optional(found->mean);
      };
      std::vector<Series> series{series_of(steps_, "training", "first",
                                           [&](const auto& m) { return mean(m.other_losses); }),
                                 series_of(steps_, "validation", "second", [&](const auto& m) {
                                   return mean(m.other_validation_losses);
                                 })};
      std::erase_if(series, [](const Series& one) { return one.points.empty(); });
      if (series.empty()) continue;
      std::string title = text(term.counted, " loss");
      title.front() = static_cast<char>(std::toupper(title.front()));
      out += both(series, title, text("nats per ", term.counted), false);
    }
    return out;
  }

  std::string memory() const {
    Bytes most = 0;
    for (const auto& m : steps_) most = std::max(most, m.peak_bytes);
    if (most == 0) return "";  // not known on this system
    constexpr double mebi = 1 << 20;
    const bool gibi = static_cast<double>(most) >= 1024 * mebi;
    const double unit = gibi ? 1024 * mebi : mebi;
    return chart({curve([&](const auto& m) { return static_cast<double>(m.peak_bytes) / unit; })},
                 {"Peak memory", text(gibi ? "GiB" : "MiB", ", most resident of any rank so far"),
                  false, true, last_x_, marks_});
  }

  const RunReport& report_;
  architecture::TrainingObjective objective_;
  const Steps& steps_;
  std::vector<Mark> marks_;
  double last_x_ = 1;
};

}  // namespace

std::vector<SkippedSteps> skipped_steps(const RunReport& report) {
  std::vector<SkippedSteps> found;
  std::int64_t step = 0;
  std::int64_t skipped = 0;
  for (const train::Metrics& m : report.records.steps) {
    if (m.skipped_steps > skipped) {
      SkippedSteps s{step + 1, m.step, m.skipped_steps - skipped, ""};
      if (report.history)
        for (const auto& one : report.history->skipped)
          if (one.step >= s.first && one.step <= s.last) s.words = words_of(one);
      if (s.words.empty())
        s.words = text(s.steps, s.steps == 1 ? " step" : " steps", " skipped of steps ",
                       with_commas(s.first), " to ", with_commas(s.last));
      found.push_back(std::move(s));
    }
    step = m.step;
    skipped = m.skipped_steps;
  }
  return found;
}

std::string report_charts(const RunReport& report) {
  if (report.records.steps.empty()) return "<p>No step has been logged.</p>\n";
  std::string keys = "<p class=\"marks\">";
  for (const auto& [style, words] :
       {std::pair{"checkpoint", "checkpoint"}, std::pair{"restart", "restart"},
        std::pair{"skipped", "skipped step"}})
    keys += text("<span class=\"key ", style, "\">", words, "</span>");
  return keys + "</p>\n" + Charts(report).all();
}

}  // namespace trireme::commands
