#pragma once

#include <trireme/commands/report/plot_columns.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::commands {

struct Series {
  std::string name;
  std::string style;          ///< CSS class: "first", "second" or "earlier"
  std::vector<Point> points;  ///< x is a step, ascending; a y that is not finite interrupts it
};

enum class MarkKind : std::uint8_t { checkpoint, restart, skipped };

/// Something that happened at a step.
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

/// A figure in HTML: an SVG that stretches to the width it gets, with labels beside it that do not.
/// Series of many points are drawn as the mean of each column with a band from the least to the
/// largest. Without a point to show, a sentence says so.
std::string chart(const std::vector<Series>& series, const ChartOptions& options);

}  // namespace trireme::commands
