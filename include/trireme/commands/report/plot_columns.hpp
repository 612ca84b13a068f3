#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::commands {

struct Point {
  double x = 0;
  double y = 0;
};

/// What a column of a chart shows of the points in it.
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
