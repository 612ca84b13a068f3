// The charts of a report, over steps, tokens or time.
#include <trireme/architecture/objective.hpp>
#include <trireme/base/text.hpp>
#include <trireme/commands/report/chart.hpp>
#include <trireme/commands/report/markup.hpp>
#include <trireme/commands/report/run_report.hpp>
#include <trireme/commands/report/ticks.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace trireme::commands {
namespace {

using Steps = std::vector<train::Metrics>;

constexpr std::size_t most_earlier = 4;  // earlier runs that are also drawn
constexpr double log_ratio = 30;  // largest / smallest norm above which the axis is logarithmic

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// The loss without its other terms, which have separate charts.
template <class Record>
double token_loss(const Record& record) {
  double loss = record.loss;
  for (const train::NamedLoss& other : record.other_losses)
    if (!other.name.starts_with(architecture::further_loss)) loss -= other.mean;
  return loss;
}

/// Tokens and time of a run after a step, interpolated linearly between logged steps.
class Clock {
 public:
  explicit Clock(const Steps& steps) {
    double sum = 0;
    for (const train::Metrics& m : steps) {
      const double before = steps_.empty() ? 0 : steps_.back();
      sum += (static_cast<double>(m.step) - before) * finite(m.step_seconds).value_or(0);
      steps_.push_back(static_cast<double>(m.step));
      tokens_.push_back(static_cast<double>(m.tokens));
      seconds_.push_back(sum);
    }
  }
  double tokens(double step) const { return at(tokens_, step); }
  double seconds(double step) const { return at(seconds_, step); }
  double last_step() const { return steps_.empty() ? 0 : steps_.back(); }
  /// Tokens of a step; 0 if steps have different numbers of tokens.
  double tokens_per_step() const {
    const double first = steps_.empty() ? 0 : tokens_.front() / steps_.front();
    for (std::size_t i = 0; i < steps_.size(); ++i)
      if (tokens_[i] != first * steps_[i]) return 0;
    return first;
  }

 private:
  double at(const std::vector<double>& values, double step) const {
    const auto above = std::ranges::lower_bound(steps_, step) - steps_.begin();
    const auto i = static_cast<std::size_t>(above);
    if (i == steps_.size()) return values.empty() ? 0 : values.back();
    const double step_before = i == 0 ? 0 : steps_[i - 1];
    const double before = i == 0 ? 0 : values[i - 1];
    return before + (values[i] - before) * (step - step_before) / (steps_[i] - step_before);
  }

  std::vector<double> steps_, tokens_, seconds_;
};

/// The axes of steps, tokens and time, long enough for all runs. `clocks` must outlive the axes.
std::vector<XAxis> axes_of(const std::vector<Clock>& clocks) {
  XAxis steps, tokens, time;
  tokens.name = tokens.title = tokens.unit = "tokens";
  tokens.last = steps.last = 0;
  tokens.per_step = clocks.front().tokens_per_step();
  Seconds longest = 0;
  for (const Clock& clock : clocks) {
    if (clock.last_step() == 0) continue;
    steps.last = std::max(steps.last, clock.last_step());
    tokens.last = std::max(tokens.last, clock.tokens(clock.last_step()));
    longest = std::max(longest, clock.seconds(clock.last_step()));
    if (clock.tokens_per_step() != tokens.per_step) tokens.per_step = 0;
  }
  const auto& [unit, seconds] = longest < 300     ? std::pair{"seconds", 1.0}
                                : longest < 18000 ? std::pair{"minutes", 60.0}
                                                  : std::pair{"hours", 3600.0};
  time.name = "time";
  time.unit = unit;
  time.title = text(unit, " in steps");
  time.last = longest / seconds;
  tokens.place = [&clocks](std::size_t run, double step) { return clocks[run].tokens(step); };
  time.place = [&clocks, seconds](std::size_t run, double step) {
    return clocks[run].seconds(step) / seconds;
  };
  std::vector<XAxis> axes{steps};
  if (tokens.last > 0) axes.push_back(tokens);
  if (time.last > 0) axes.push_back(time);
  return axes;
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

/// Makes all charts of a run, or of several runs in comparison.
class Charts {
 public:
  explicit Charts(std::span<const RunReport> runs)
      : runs_(runs), objective_(architecture::objective_of(runs.front().deck.config.model)) {
    for (const RunReport& run : runs) clocks_.emplace_back(run.records.steps);
    if (single()) {
      marks_ = marks_of(runs.front());
      const auto& earlier = runs.front().earlier;
      for (std::size_t i = earlier.size() - std::min(earlier.size(), most_earlier);
           i < earlier.size(); ++i) {
        earlier_.push_back(&earlier[i].records);
        clocks_.emplace_back(earlier[i].records.steps);
      }
    }
    axes_ = axes_of(clocks_);
    if (single()) {
      // The axes end with the current run, not with an earlier run.
      const Clock& own = clocks_.front();
      for (XAxis& axis : axes_)
        axis.last = axis.place ? axis.place(0, own.last_step()) : own.last_step();
    }
  }

  /// All charts, after the buttons that select the horizontal axis.
  std::string all() const {
    std::string buttons;
    for (const XAxis& axis : axes_)
      buttons += text("<input type=\"radio\" name=\"by\" id=\"by-", axis.name, "\"",
                      axis.name == "steps" ? " checked=\"checked\"" : "", "/><label for=\"by-",
                      axis.name, "\">", axis.name == "time" ? axis.unit : axis.name, "</label>\n");
    return "<div class=\"switch\"><span class=\"soft\">horizontal axis: </span>" + buttons +
           "<div class=\"charts\">\n" + figures() + "</div></div>\n";
  }

 private:
  bool single() const { return runs_.size() == 1; }

  std::string figures() const {
    std::string out = loss();
    const auto add = [&](const ChartOptions& options, const std::vector<Series>& series) {
      const bool any =
          std::ranges::any_of(series, [](const Series& s) { return !s.points.empty(); });
      if (any) out += figure(series, options);
    };
    if (!single()) add({"Validation loss", loss_unit()}, curves(&train::Metrics::validation_loss));
    add({.title = "Learning rate", .from_zero = true}, curves(&train::Metrics::learning_rate));
    const std::vector<Series> all_norms = norms();
    const bool wide = spans(all_norms);
    add({"Gradient norm", "norm", wide ? "before clipping, logarithmic" : "before clipping", wide,
         !wide},
        all_norms);
    add({"Tokens per second", "tokens per second", "of all ranks", false, true},
        noisy(curves(&train::Metrics::tokens_per_second)));
    add({"MFU", "%", "of the measured matrix-product peak", false, true},
        noisy(curves([](const auto& m) { return 100 * m.flops_utilization; })));
    out += memory();
    const bool ramps = std::ranges::any_of(runs_, [](const RunReport& run) {
      const Steps& steps = run.records.steps;
      return !steps.empty() && steps.front().global_batch != steps.back().global_batch;
    });
    if (ramps)
      add({"Global batch", "samples", "", false, true},
          curves([](const auto& m) { return static_cast<double>(m.global_batch); }));
    add({"Loss scale", "", "logarithmic", true}, curves(&train::Metrics::loss_scale));
    add({"Gradient noise scale", "samples", "logarithmic", true},
        curves(&train::Metrics::gradient_noise_scale));
    add({"Load of experts", "times the mean", "most used expert of any layer"},
        noisy(curves(&largest_load)));
    out += loads_of_layers() + loads_of_experts();
    add({"Dropped choices of experts", "fraction", "layer that drops most"},
        noisy(curves(&most_dropped)));
    add({"Bits per byte", "bits per byte", "validation"}, curves(&train::Metrics::bits_per_byte));
    return out + other_losses();
  }

  static std::optional<double> largest_load(const train::Metrics& m) {
    if (m.expert_loads.empty()) return {};
    return std::ranges::max(m.expert_loads);
  }
  static std::optional<double> most_dropped(const train::Metrics& m) {
    if (m.dropped_choices.empty()) return {};
    return std::ranges::max(m.dropped_choices);
  }

  /// A heat map of a single run with several layers of experts.
  std::string loads_of_layers() const {
    const std::vector<std::int64_t>& layers = objective_.expert_layers;
    if (!single() || layers.size() < 2) return "";
    ChartOptions options{"Load of experts by layer", "layer", "most used expert, times the mean"};
    std::vector<Series> rows;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      options.rows.push_back(text(layers[i]));
      rows.push_back({text("layer ", layers[i]), "first", {}, 0});
      for (const train::Metrics& m : runs_.front().records.steps)
        if (i < m.expert_loads.size())
          rows.back().points.push_back({static_cast<double>(m.step), m.expert_loads[i]});
    }
    const bool any = std::ranges::any_of(rows, [](const Series& s) { return !s.points.empty(); });
    return any ? figure(rows, options) : "";
  }

  /// Heat maps of the experts of a single run, for the layers whose last loads are largest.
  std::string loads_of_experts() const {
    constexpr std::size_t most = 3;
    const std::vector<std::int64_t>& layers = objective_.expert_layers;
    std::vector<const train::Metrics*> lines;
    if (single())
      for (const train::Metrics& m : runs_.front().records.steps)
        if (m.expert_tokens.size() == layers.size() && m.expert_loads.size() == layers.size())
          lines.push_back(&m);
    if (lines.empty() || layers.empty()) return "";
    std::vector<std::size_t> order(layers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater{},
                             [&](std::size_t i) { return lines.back()->expert_loads[i]; });
    order.resize(std::min(order.size(), most));
    std::ranges::sort(order);
    std::string out;
    for (const std::size_t i : order) {
      ChartOptions options{text("Load of the experts of layer ", layers[i]), "expert",
                           "times the mean"};
      std::vector<Series> rows;
      for (std::int64_t e = 0; e < objective_.experts; ++e) {
        options.rows.push_back(text(e));
        rows.push_back({text("expert ", e), "first", {}, 0});
        for (const train::Metrics* m : lines)
          if (const auto load = load_of(m->expert_tokens[i], e))
            rows.back().points.push_back({static_cast<double>(m->step), *load});
      }
      out += figure(rows, options);
    }
    return out;
  }
  static std::optional<double> load_of(const std::vector<std::int64_t>& tokens, std::int64_t e) {
    const auto all =
        static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
    if (e >= std::ssize(tokens) || all == 0) return {};
    return static_cast<double>(tokens[static_cast<std::size_t>(e)]) *
           static_cast<double>(tokens.size()) / all;
  }

  std::string figure(const std::vector<Series>& series, ChartOptions options) const {
    options.axes = axes_;
    options.marks = marks_;
    options.legend = single();
    return chart(series, options);
  }

  Series empty_series(std::size_t run) const {
    if (single()) return {"value", "first", {}, 0};
    return {runs_[run].folder, text("run-", run + 1), {}, run};
  }

  /// A curve for each run, without points at steps for which `value` returns std::nullopt.
  template <class Value>
  std::vector<Series> curves(Value value) const {
    std::vector<Series> all;
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      all.push_back(empty_series(run));
      for (const train::Metrics& m : runs_[run].records.steps)
        if (const std::optional<double> y = std::invoke(value, m))
          all.back().points.push_back({static_cast<double>(m.step), *y});
    }
    return all;
  }
  static std::vector<Series> noisy(std::vector<Series> series) {
    for (Series& s : series) s.noisy = true;
    return series;
  }

  std::vector<Series> norms() const {
    std::vector<Series> all;
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      all.push_back(empty_series(run));
      for (const train::StepLoss& s : runs_[run].records.losses)
        if (s.gradient_norm)
          all.back().points.push_back({static_cast<double>(s.step), *s.gradient_norm});
    }
    return noisy(std::move(all));
  }

  static bool spans(const std::vector<Series>& series) {
    double low = std::numeric_limits<double>::infinity();
    double high = 0;
    for (const Series& s : series)
      for (const Point& p : s.points)
        if (std::isfinite(p.y)) {
          low = std::min(low, p.y);
          high = std::max(high, p.y);
        }
    return low > 0 && high > log_ratio * low;
  }

  std::string loss_unit() const { return text("nats per ", objective_.losses.front().counted); }

  /// Two charts of the loss, linear and logarithmic; two buttons select one of them.
  std::string loss() const {
    const auto add_losses = [](Series& series, const RunRecords& records) {
      for (const train::StepLoss& s : records.losses)
        series.points.push_back({static_cast<double>(s.step), token_loss(s)});
    };
    std::vector<Series> series;
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      series.push_back(empty_series(run));
      add_losses(series.back(), runs_[run].records);
    }
    series = noisy(std::move(series));
    if (single()) {
      series.front().name = "training";
      Series validation = std::move(curves(&train::Metrics::validation_loss).front());
      validation.name = "validation";
      validation.style = "second";
      if (!validation.points.empty()) series.push_back(std::move(validation));
      for (std::size_t i = 0; i < earlier_.size(); ++i) {
        Series earlier{"earlier runs", "earlier", {}, i + 1};
        add_losses(earlier, *earlier_[i]);
        if (!earlier.points.empty()) series.push_back(std::move(earlier));
      }
    }
    const std::string title = single() ? "Loss" : "Training loss";
    return text(
        "<div class=\"scale\"><input type=\"radio\" name=\"scale\" id=\"linear\" "
        "checked=\"checked\"/><label for=\"linear\">linear</label><input type=\"radio\" "
        "name=\"scale\" id=\"logarithmic\"/><label for=\"logarithmic\">logarithmic</label>\n",
        "<div class=\"linear wide\">", figure(series, {title, loss_unit()}),
        "</div><div class=\"logarithmic wide\">",
        figure(series, {title, loss_unit(), "logarithmic axis", true}), "</div></div>\n");
  }

  /// One chart per further loss term of a single run.
  std::string other_losses() const {
    std::string out;
    for (std::size_t i = 1; single() && i < objective_.losses.size(); ++i) {
      const architecture::LossTerm& term = objective_.losses[i];
      const auto mean = [&](const std::vector<train::NamedLoss>& losses) -> std::optional<double> {
        const auto found = std::ranges::find(losses, term.name, &train::NamedLoss::name);
        return found == losses.end() ? std::nullopt : std::optional(found->mean);
      };
      std::vector<Series> series{{"training", "first", {}, 0, true}};
      for (const train::StepLoss& s : runs_.front().records.losses)
        if (const auto y = mean(s.other_losses))
          series.front().points.push_back({static_cast<double>(s.step), *y});
      series.push_back(std::move(
          curves([&](const auto& m) { return mean(m.other_validation_losses); }).front()));
      series.back().name = "validation";
      series.back().style = "second";
      std::erase_if(series, [](const Series& one) { return one.points.empty(); });
      if (series.empty()) continue;
      std::string title(term.name);
      std::ranges::replace(title, '_', ' ');
      title.front() = static_cast<char>(std::toupper(title.front()));
      out += figure(series, {title, text(term.of_layers ? "per " : "nats per ", term.counted)});
    }
    return out;
  }

  std::string memory() const {
    Bytes most = 0;
    for (const RunReport& run : runs_)
      for (const auto& m : run.records.steps) most = std::max(most, m.peak_bytes);
    if (most == 0) return "";  // the system does not report memory
    constexpr double mebi = 1 << 20;
    const bool gibi = static_cast<double>(most) >= 1024 * mebi;
    const double unit = gibi ? 1024 * mebi : mebi;
    return figure(curves([&](const auto& m) { return static_cast<double>(m.peak_bytes) / unit; }),
                  {"Peak memory", gibi ? "GiB" : "MiB",
                   "largest resident memory of any rank so far", false, true});
  }

  std::span<const RunReport> runs_;
  architecture::TrainingObjective objective_;
  std::vector<const RunRecords*> earlier_;
  std::vector<Clock> clocks_;  ///< clocks of the runs, then of the earlier runs
  std::vector<XAxis> axes_;
  std::vector<Mark> marks_;
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

std::string report_charts(std::span<const RunReport> runs) {
  const bool any =
      std::ranges::any_of(runs, [](const RunReport& run) { return !run.records.steps.empty(); });
  if (!any) return "<p>No step has been logged.</p>\n";
  std::string keys = "<p class=\"marks\">";
  const auto add = [&](const std::string& style, const std::string& words) {
    keys += text("<span class=\"key ", style, "\">", escaped(words), "</span>");
  };
  if (runs.size() == 1)
    for (const auto& [style, words] :
         {std::pair{"checkpoint", "checkpoint"}, std::pair{"restart", "restart"},
          std::pair{"skipped", "skipped step"}})
      add(style, words);
  else
    for (std::size_t i = 0; i < runs.size(); ++i) add(text("run-", i + 1), runs[i].folder);
  return keys +
         "<span class=\"soft\">thin line or band: every step; thick line: moving "
         "average</span></p>\n" +
         Charts(runs).all();
}

}  // namespace trireme::commands
