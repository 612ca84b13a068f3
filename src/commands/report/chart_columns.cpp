#include <trireme/commands/report/chart.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::commands {
namespace {

void add(PlotColumn& column, const Point& point) {
  const auto points = static_cast<double>(column.points + column.not_finite);
  if (points == 0) column.first_x = point.x;
  column.last_x = point.x;
  column.x += (point.x - column.x) / (points + 1);
  if (!std::isfinite(point.y)) {
    ++column.not_finite;
    return;
  }
  if (column.points == 0) column.minimum = column.maximum = point.y;
  column.minimum = std::min(column.minimum, point.y);
  column.maximum = std::max(column.maximum, point.y);
  ++column.points;
  column.mean += (point.y - column.mean) / static_cast<double>(column.points);
}

}  // namespace

std::vector<PlotColumn> plot_columns(std::span<const Point> points, std::size_t most) {
  std::vector<PlotColumn> columns;
  if (points.empty()) return columns;
  const double first = points.front().x;
  const double width = (points.back().x - first) / static_cast<double>(most);
  const bool single = points.size() <= most || !(width > 0);
  double interval = -1;
  for (const Point& point : points) {
    const double its =
        single ? interval + 1
               : std::min(std::floor((point.x - first) / width), static_cast<double>(most - 1));
    if (its > interval) columns.emplace_back();
    interval = its;
    add(columns.back(), point);
  }
  return columns;
}

std::vector<double> moving_average(std::span<const PlotColumn> columns) {
  constexpr std::size_t fewest = 40;
  const std::size_t n = columns.size();
  if (n < fewest) return {};
  const double width = static_cast<double>(n) / 100 + 1;
  const auto reach = static_cast<std::size_t>(3 * width);
  std::vector<double> average(n);
  for (std::size_t i = 0; i < n; ++i) {
    // Symmetric around i: otherwise the average of a falling curve would begin too low.
    const std::size_t near = std::min({reach, i, n - 1 - i});
    double sum = 0;
    double weights = 0;
    for (std::size_t j = i - near; j <= i + near; ++j) {
      const double distance = (static_cast<double>(j) - static_cast<double>(i)) / width;
      const double weight =
          std::exp(-distance * distance / 2) * static_cast<double>(columns[j].points);
      if (columns[j].points > 0) sum += weight * columns[j].mean;
      weights += weight;
    }
    average[i] = sum / weights;  // only used where the column has points
  }
  return average;
}

}  // namespace trireme::commands
