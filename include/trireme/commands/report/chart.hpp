#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme::commands {

struct Point {
  double x = 0;
  double y = 0;
};

struct Series {
  std::string name;
  std::string style;          ///< CSS class: "first", "second", "earlier" or "run-1"
  std::vector<Point> points;  ///< x is a step, ascending; a non-finite y interrupts the curve
  std::size_t run = 0;        ///< index of the run, for XAxis::place
  bool noisy = false;         ///< draw the moving average, if there are enough points
};

enum class MarkKind : std::uint8_t { checkpoint, restart, skipped };

/// An event at a step.
struct Mark {
  MarkKind kind = MarkKind::checkpoint;
  double x = 0;
  std::string words;
};

/// A horizontal axis that the reader of a page can select.
struct XAxis {
  std::string name = "steps";  ///< name in the CSS class "by-steps"
  std::string title = "step";
  std::string unit = "steps";  ///< unit of a value or range
  double last = 1;
  /// Position of a run's step on the axis; null: the step itself.
  std::function<double(std::size_t run, double step)> place = {};
  /// If above 0, every position is this multiple of the step.
  double per_step = 0;
};

struct ChartOptions {
  std::string title = {};
  std::string unit = {};  ///< title of the vertical axis; "": the chart's title
  std::string note = {};  ///< text after the title
  bool logarithmic = false;
  bool from_zero = false;
  bool legend = true;
  /// Names of the series. If not empty, the chart is a heat map: each series is a row of cells, the
  /// first at the bottom, coloured from the smallest to the largest mean of a cell.
  std::vector<std::string> rows = {};
  std::span<const XAxis> axes = {};  ///< the first is the axis of steps
  std::span<const Mark> marks = {};  ///< marks of run 0
};

/// A figure in HTML: an SVG that is scaled to the width of the page, and labels that are not
/// scaled. Without values to draw, the figure contains a sentence instead.
std::string chart(const std::vector<Series>& series, const ChartOptions& options);

/// Points of a curve in an interval of x.
struct PlotColumn {
  double x = 0;  ///< mean x of the points
  double first_x = 0;
  double last_x = 0;
  double mean = 0;
  double minimum = 0;
  double maximum = 0;
  std::int64_t points = 0;      ///< points with a finite y; 0: the curve is interrupted here
  std::int64_t not_finite = 0;  ///< points whose y is not finite
};

/// Groups `points`, ascending in x, into columns: one column per point if there are at most `most`
/// points, otherwise one for each of `most` equal intervals of x that contains points.
std::vector<PlotColumn> plot_columns(std::span<const Point> points, std::size_t most);

/// Means of the columns, smoothed by a Gaussian with a standard deviation of n / 100 + 1 columns
/// and weighted by the columns' points; n: number of columns. Empty if n < 40.
std::vector<double> moving_average(std::span<const PlotColumn> columns);

}  // namespace trireme::commands
