#pragma once

#include <cstdint>
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
  std::string style;          ///< CSS class: "first", "second" or "earlier"
  std::vector<Point> points;  ///< x is a step, ascending; a y that is not finite interrupts it
};

enum class MarkKind : std::uint8_t { checkpoint, restart, skipped };

/// An event at a step.
struct Mark {
  MarkKind kind = MarkKind::checkpoint;
  double x = 0;
  std::string words;
};

struct ChartOptions {
  std::string title = {};
  std::string unit = {};
  bool logarithmic = false;
  bool from_zero = false;
  double last_x = 1;
  std::span<const Mark> marks = {};
};

/// A figure in HTML: an SVG that is scaled to the width of the page, with labels next to it that
/// are not scaled. Series of many points are drawn as the mean of each column with a band from
/// minimum to maximum. Without points, the figure is a sentence.
std::string chart(const std::vector<Series>& series, const ChartOptions& options);

/// Points of a curve in one column of pixels.
struct PlotColumn {
  double x = 0;  ///< mean of its points
  double first_x = 0;
  double last_x = 0;
  double mean = 0;
  double minimum = 0;
  double maximum = 0;
  std::int64_t points = 0;      ///< with a finite y; 0: the curve is interrupted here
  std::int64_t not_finite = 0;  ///< the others
};

/// `points`, ascending in x, in at most `most` columns: one for each point if there are no more,
/// else those of equal intervals of x that have points.
std::vector<PlotColumn> plot_columns(std::span<const Point> points, std::size_t most);

}  // namespace trireme::commands
