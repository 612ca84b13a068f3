// Line charts as SVG.
#include <trireme/commands/report/chart.hpp>

#include <trireme/base/text.hpp>
#include <trireme/commands/report/markup.hpp>
#include <trireme/commands/report/ticks.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

namespace trireme::commands {
namespace {

// Size of a drawing in SVG units; the page scales the drawing to its place.
constexpr double width = 1000;
constexpr double height = 1000;
constexpr std::size_t most_columns = 400;  // of a curve
constexpr std::size_t most_hits = 100;     // strips that show values under the pointer
constexpr std::size_t most_dots = 60;  // curves with at most this number of points show each point
constexpr std::size_t most_marks = 240;
constexpr std::size_t most_cells = 100;  // of a row of a heat map
constexpr int colours = 16;              // of a heat map
constexpr std::size_t most_named = 3;    // rows of a heat map that show values under the pointer
constexpr std::ptrdiff_t max_row_names = 8;
constexpr int y_ticks = 5;
constexpr int x_ticks = 5;

struct Axes {
  Ticks x;
  Ticks y;
  bool logarithmic = false;

  double x_of(double value) const { return width * (value - x.low) / (x.high - x.low); }
  double y_of(double value) const {
    const double part = logarithmic ? std::log(value / y.low) / std::log(y.high / y.low)
                                    : (value - y.low) / (y.high - y.low);
    return height * (1 - std::clamp(part, 0.0, 1.0));
  }
};

/// A length in SVG units, rounded to one decimal.
std::string px(double length) {
  return text(std::round(length * 10) / 10);
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool empty() const { return !(low <= high); }
};

/// Whether an axis can show a value: it must be finite, and above 0 on a logarithmic axis.
bool has_place(double y, bool logarithmic) {
  return std::isfinite(y) && (!logarithmic || y > 0);
}

Range range_of(const std::vector<Series>& series, bool logarithmic) {
  Range range;
  for (const Series& s : series)
    for (const Point& p : s.points)
      if (has_place(p.y, logarithmic)) {
        range.low = std::min(range.low, p.y);
        range.high = std::max(range.high, p.y);
      }
  return range;
}

Axes axes_of(Range range, const ChartOptions& options, const XAxis& across) {
  Axes axes;
  axes.logarithmic = options.logarithmic;
  axes.x =
      across.place ? round_ticks(0, across.last, x_ticks) : step_ticks(0, across.last, x_ticks);
  if (across.place) {
    axes.x.high = across.last;  // this axis is not extended to a tick
    std::erase_if(axes.x.ticks, [&](const Tick& t) { return t.at > across.last; });
  }
  if (!options.rows.empty()) {
    const auto rows = std::ssize(options.rows);
    axes.y = {0, static_cast<double>(rows), {}};
    const auto stride = (rows + max_row_names - 1) / max_row_names;
    for (std::ptrdiff_t i = 0; i < rows; i += stride)
      axes.y.ticks.push_back(
          {static_cast<double>(i) + 0.5, options.rows[static_cast<std::size_t>(i)]});
    return axes;
  }
  if (options.from_zero) range.low = std::min(range.low, 0.0);
  axes.y = options.logarithmic ? log_ticks(range.low, range.high, y_ticks)
                               : round_ticks(range.low, range.high, y_ticks);
  return axes;
}

/// A command of an SVG path: moves to a point of the chart ("M"), or draws a line to it ("L").
std::string point_of(const Axes& axes, double x, double y, char how) {
  return text(how, px(axes.x_of(x)), " ", px(axes.y_of(y)));
}

/// The band from minimum to maximum of each column, as one closed path per uninterrupted part.
std::string band(const Axes& axes, std::span<const PlotColumn> columns) {
  std::string out;
  for (std::size_t begin = 0, end = 0; begin < columns.size(); begin = end + 1) {
    for (end = begin; end < columns.size() && columns[end].points > 0;) ++end;
    for (std::size_t c = begin; c < end; ++c)
      out += point_of(axes, columns[c].x, columns[c].maximum, c == begin ? 'M' : 'L');
    for (std::size_t c = end; c > begin; --c)
      out += point_of(axes, columns[c - 1].x, columns[c - 1].minimum, 'L');
    if (end > begin) out += 'Z';
  }
  return out;
}

std::string curve(const Axes& axes, std::span<const PlotColumn> columns) {
  std::string out;
  char how = 'M';
  for (const PlotColumn& c : columns) {
    if (c.points > 0) out += point_of(axes, c.x, c.mean, how);
    how = c.points > 0 ? 'L' : 'M';
  }
  return out;
}

/// Lines of zero length with round ends: circles would be stretched with the picture.
std::string dots(const Axes& axes, std::span<const PlotColumn> columns) {
  std::string out;
  for (const PlotColumn& c : columns)
    if (c.points > 0) out += point_of(axes, c.x, c.mean, 'M') + "h0";
  return out;
}

std::string path(std::string_view style, std::string_view what, const std::string& d) {
  return d.empty() ? "" : text("<path class=\"", what, " ", style, "\" d=\"", d, "\"/>\n");
}

/// The points of the series, with NaN for values that a logarithmic axis cannot show.
std::vector<Point> placed(const Series& series, bool logarithmic) {
  std::vector<Point> points = series.points;
  for (Point& p : points)
    if (!has_place(p.y, logarithmic)) p.y = std::numeric_limits<double>::quiet_NaN();
  return points;
}

std::string draw_series(const Axes& axes, const Series& series) {
  const std::vector<Point> points = placed(series, axes.logarithmic);
  const auto columns = plot_columns(points, most_columns);
  std::string out;
  const auto average = series.noisy ? moving_average(columns) : std::vector<double>();
  if (points.size() > columns.size())
    out += path(series.style, "band", band(axes, columns));
  else if (!average.empty())
    out += path(series.style, "raw", curve(axes, columns));
  std::vector<PlotColumn> smooth = columns;
  for (std::size_t c = 0; c < average.size(); ++c) smooth[c].mean = average[c];
  out += path(series.style, "line", curve(axes, smooth));
  if (points.size() <= most_dots) out += path(series.style, "dots", dots(axes, columns));
  return out;
}

/// Ends of columns on the horizontal axis: halfway to the next column.
double right_end(std::span<const PlotColumn> columns, std::size_t c, const Axes& axes) {
  return c + 1 < columns.size() ? (columns[c].last_x + columns[c + 1].first_x) / 2 : axes.x.high;
}

/// Smallest and largest mean of a heat map's cells.
Range range_of_cells(const std::vector<Series>& series) {
  Range range;
  for (const Series& s : series)
    for (const PlotColumn& c : plot_columns(s.points, most_cells))
      if (c.points > 0) {
        range.low = std::min(range.low, c.mean);
        range.high = std::max(range.high, c.mean);
      }
  return range;
}

/// The cells of a heat map: one path per colour; neighbours of the same colour are one rectangle.
std::string cells(const Axes& axes, const std::vector<Series>& series) {
  const Range range = range_of_cells(series);
  const auto colour = [&](const PlotColumn& c) {
    if (c.points == 0) return -1;
    const double part =
        range.high > range.low ? (c.mean - range.low) / (range.high - range.low) : 0;
    return static_cast<int>(std::lround(part * colours));
  };
  std::vector<std::string> paths(colours + 1);
  for (std::size_t row = 0; row < series.size(); ++row) {
    const auto columns = plot_columns(series[row].points, most_cells);
    const double top = axes.y_of(static_cast<double>(row + 1));
    const double bottom = axes.y_of(static_cast<double>(row));
    double left = axes.x.low;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const int of = colour(columns[c]);
      if (c + 1 < columns.size() && colour(columns[c + 1]) == of) continue;
      const double right = right_end(columns, c, axes);
      if (of >= 0)
        paths[static_cast<std::size_t>(of)] +=
            text("M", px(axes.x_of(left)), " ", px(top), "H", px(axes.x_of(right)), "V", px(bottom),
                 "H", px(axes.x_of(left)), "Z");
      left = right;
    }
  }
  std::string out;
  for (int of = 1; of <= colours; ++of)
    if (const std::string& d = paths[static_cast<std::size_t>(of)]; !d.empty())
      out += text("<path class=\"cells\" fill-opacity=\"", std::round(100.0 * of / colours) / 100,
                  "\" d=\"", d, "\"/>\n");
  return out;
}

std::string grid_lines(const Axes& axes) {
  std::string d;
  for (const Tick& t : axes.y.ticks) d += text("M0 ", px(axes.y_of(t.at)), "H1000");
  for (const Tick& t : axes.x.ticks) d += text("M", px(axes.x_of(t.at)), " 0V1000");
  return text("<path class=\"grid\" d=\"", d, "\"/>\n");
}

/// Marks as lines: restarts over the whole height, skipped steps at the top, checkpoints at the
/// bottom.
std::string draw_marks(const Axes& axes, std::span<const Mark> marks) {
  std::string out;
  for (const auto& [kind, style, d] : {std::tuple{MarkKind::checkpoint, "checkpoint", " 1000v-45"},
                                       std::tuple{MarkKind::restart, "restart", " 0V1000"},
                                       std::tuple{MarkKind::skipped, "skipped", " 0v70"}}) {
    std::string lines;
    double last = -width;
    for (const Mark& mark : marks) {
      const double x = std::round(axes.x_of(mark.x) * 10) / 10;
      if (mark.kind != kind || mark.x < axes.x.low || mark.x > axes.x.high ||
          x - last < width / most_marks)
        continue;
      lines += text("M", px(x), d);
      last = x;
    }
    out += path(style, "mark", lines);
  }
  return out;
}

/// "steps 10 to 20", "0.5 to 0.6 hours"
std::string range_text(const XAxis& across, double first, double last) {
  if (across.place)
    return text(short_number(first), first == last ? "" : " to " + short_number(last), " ",
                across.unit);
  const std::string from = with_commas(std::llround(first));
  return first == last ? "step " + from
                       : text("steps ", from, " to ", with_commas(std::llround(last)));
}

/// One column of the points of a series within [first, last]; none without points.
std::vector<PlotColumn> column_within(const Series& series, double first, double last) {
  const auto begin = std::lower_bound(series.points.begin(), series.points.end(), first,
                                      [](const Point& p, double x) { return p.x < x; });
  const auto end = std::upper_bound(begin, series.points.end(), last,
                                    [](double x, const Point& p) { return x < p.x; });
  return plot_columns({begin, end}, 1);
}

/// "training 3.21 (3.1 to 3.4)": mean and range of the points within [first, last]; "": no points.
std::string values_text(const Series& series, double first, double last) {
  const auto columns = column_within(series, first, last);
  if (columns.empty()) return "";
  const PlotColumn& c = columns.front();
  std::string out =
      text("\n", series.name, " ", c.points == 0 ? "not finite" : short_number(c.mean));
  if (c.minimum < c.maximum)
    out += text(" (", short_number(c.minimum), " to ", short_number(c.maximum), ")");
  if (c.points > 0 && c.not_finite > 0) out += text(", ", c.not_finite, " not finite");
  return out;
}

/// The values of a heat map's rows with the largest means within [first, last], as values_text().
std::string largest_text(const std::vector<Series>& series, double first, double last) {
  std::vector<std::pair<double, std::string>> found;
  for (const Series& s : series) {
    const auto columns = column_within(s, first, last);
    if (!columns.empty() && columns.front().points > 0)
      found.emplace_back(columns.front().mean, values_text(s, first, last));
  }
  std::ranges::stable_sort(found, std::greater(), &std::pair<double, std::string>::first);
  std::string out;
  for (std::size_t i = 0; i < std::min(found.size(), most_named); ++i) out += found[i].second;
  return out;
}

/// Strips over the chart that show the values under the pointer.
std::string hits(const Axes& axes, const std::vector<Series>& series, std::span<const Mark> marks,
                 const XAxis& across, bool map) {
  const Series& longest =
      *std::ranges::max_element(series, {}, [](const Series& s) { return s.points.size(); });
  const auto columns = plot_columns(longest.points, most_hits);
  std::string out;
  double left = axes.x.low;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const PlotColumn& column = columns[c];
    const double right = right_end(columns, c, axes);
    std::string words = range_text(across, column.first_x, column.last_x);
    if (map) words += largest_text(series, column.first_x, column.last_x);
    for (const Series& s : series)
      if (!map) words += values_text(s, column.first_x, column.last_x);
    int shown = 0;
    for (const Mark& mark : marks)
      if (mark.x > left && mark.x <= right && ++shown <= 3) words += "\n" + mark.words;
    if (shown > 3) words += text("\nand ", shown - 3, " more");
    out += text("<rect class=\"hit\" x=\"", px(axes.x_of(left)), "\" y=\"0\" width=\"",
                px(axes.x_of(right) - axes.x_of(left)), "\" height=\"1000\"><title>",
                escaped(words), "</title></rect>\n");
    left = right;
  }
  return out;
}

std::string y_labels(const Axes& axes) {
  std::string out = "<div class=\"y-labels\" aria-hidden=\"true\">";
  for (const Tick& t : axes.y.ticks)
    out += text("<span style=\"top:", px(axes.y_of(t.at) / 10), "%\">", t.label, "</span>");
  return out + "</div>";
}

/// Ticks and title below the plot.
std::string x_labels(const Axes& axes, const XAxis& across, const std::string& style) {
  std::string out = text("<div class=\"x-labels", style, "\" aria-hidden=\"true\">");
  for (const Tick& t : axes.x.ticks)
    out += text("<span style=\"left:", px(axes.x_of(t.at) / 10), "%\">", t.label, "</span>");
  return text(out, "<b>", escaped(across.title), "</b></div>");
}

/// Description of the chart for screen readers.
std::string description(const std::vector<Series>& series, const ChartOptions& options,
                        const XAxis& across) {
  std::string out = options.title;
  for (const std::string& more : {options.note, options.unit})
    if (!more.empty()) out += ", " + more;
  out += text(", ", range_text(across, 0, across.last), ".");
  if (!options.rows.empty()) {
    const auto& largest = *std::ranges::max_element(
        series, {}, [](const Series& s) { return range_of({s}, false).high; });
    return text(out, " From ", short_number(range_of(series, false).low), " to ",
                short_number(range_of({largest}, false).high), ", the largest in ", largest.name,
                ".");
  }
  for (const Series& s : series) {
    const auto columns = plot_columns(s.points, 1);
    if (columns.empty() || columns.front().points == 0) continue;
    const auto last = std::find_if(s.points.rbegin(), s.points.rend(),
                                   [](const Point& p) { return std::isfinite(p.y); });
    out += text(" ", s.name, ": from ", short_number(columns.front().minimum), " to ",
                short_number(columns.front().maximum), ", last ", short_number(last->y), ".");
  }
  return out;
}

std::string legend(const std::vector<Series>& series, const ChartOptions& options) {
  if (!options.rows.empty()) {
    const Range range = range_of_cells(series);
    return text("<span class=\"legend\"><span>", short_number(range.low, 3),
                " <span class=\"colours\"></span> ", short_number(range.high, 3), "</span></span>");
  }
  if (series.size() < 2) return "";
  std::string out = "<span class=\"legend\">";
  std::string_view before;
  for (const Series& s : series) {
    if (s.style != before)
      out += text("<span class=\"key ", s.style, "\">", escaped(s.name), "</span>");
    before = s.style;
  }
  return out + "</span>";
}

/// The series with x as positions on an axis, without points beyond the end of the axis.
std::vector<Series> placed_on(const XAxis& across, std::vector<Series> series) {
  for (Series& s : series) {
    if (across.place)
      for (Point& p : s.points) p.x = across.place(s.run, p.x);
    std::erase_if(s.points, [&](const Point& p) { return p.x > across.last * (1 + 1e-9); });
  }
  return series;
}
/// The marks with x as positions on an axis.
std::vector<Mark> placed_on(const XAxis& across, std::span<const Mark> marks) {
  std::vector<Mark> placed(marks.begin(), marks.end());
  if (across.place)
    for (Mark& mark : placed) mark.x = across.place(0, mark.x);
  return placed;
}

/// HTML of one drawing: an SVG of the curves, and the tick labels of every axis in `axes`. The
/// curves have the same shape on all of these axes.
std::string picture(const std::vector<Series>& all, Range range, const ChartOptions& options,
                    std::span<const XAxis> axes, const std::string& styles) {
  const XAxis& across = axes.front();
  const bool map = !options.rows.empty();
  const std::vector<Series> series = placed_on(across, all);
  const std::vector<Mark> marks = placed_on(across, options.marks);
  const Axes at = axes_of(range, options, across);
  std::string out = text("<svg class=\"", styles, "\" role=\"img\" aria-label=\"",
                         escaped(description(series, options, across)),
                         "\" viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">\n",
                         map ? cells(at, series) : grid_lines(at));
  for (const bool in_background : {true, false})
    for (const Series& s : series)
      if (!map && (s.style == "earlier") == in_background) out += draw_series(at, s);
  out += draw_marks(at, marks) + hits(at, series, marks, across, map) + "</svg>";
  for (const XAxis& axis : axes)
    out += x_labels(axes_of(range, options, axis), axis, " by by-" + axis.name);
  return out;
}

}  // namespace

std::string chart(const std::vector<Series>& series, const ChartOptions& options) {
  const Range range = range_of(series, options.logarithmic);
  std::string out =
      text("<figure class=\"chart\"><figcaption><b>", escaped(options.title), "</b> <span>",
           escaped(options.note), "</span>",
           options.legend && !range.empty() ? legend(series, options) : "", "</figcaption>\n");
  if (range.empty()) return out + "<p class=\"none\">No number to show.</p></figure>\n";
  const std::vector<XAxis> axes(options.axes.begin(), options.axes.end());
  const XAxis& steps = axes.front();
  std::vector<XAxis> same{steps};
  std::string styles = "by by-" + steps.name;
  std::string others;
  for (const XAxis& axis : std::span(axes).subspan(1))
    if (axis.per_step > 0) {
      same.push_back(axis);
      styles += " by-" + axis.name;
    } else {
      others += picture(series, range, options, std::span(&axis, 1), "by by-" + axis.name);
    }
  return text(
      out, "<div class=\"plot\">", picture(series, range, options, same, styles), others,
      y_labels(axes_of(range, options, steps)), "<b class=\"y-title\" aria-hidden=\"true\">",
      escaped(options.unit.empty() ? options.title : options.unit), "</b></div></figure>\n");
}

}  // namespace trireme::commands
