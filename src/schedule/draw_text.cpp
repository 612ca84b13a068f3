// Draws pictures as text: one line per rank, one label per computation.
#include <trireme/base/text.hpp>
#include <trireme/schedule/picture.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::schedule {
namespace {

/// The longest label that fits into `width` characters.
std::string label(const BoxWords& words, std::size_t width) {
  for (const std::string& label : words.labels)
    if (label.size() <= width) return label;
  return words.labels.back();
}

/// Columns per unit of time: enough for a label in the shortest computation, if the whole chart
/// then fits.
double columns_per_second(const Panel& panel, int most) {
  if (panel.span() <= 0) return 1;
  const Seconds shortest = panel.shortest();
  const double wanted = static_cast<double>(panel.label_width + 1);
  const double fits = static_cast<double>(most) / panel.span() * shortest;
  // Whole columns, so that equal computations look equal.
  return std::min(wanted, fits >= 1 ? std::floor(fits) : fits) / shortest;
}

void append_chart(std::string& out, const Panel& panel, double scale) {
  const auto column = [&](Seconds at) {
    return static_cast<std::size_t>(std::lround((at - panel.begin) * scale));
  };
  const std::size_t width = column(panel.end);
  std::vector<std::string> rows(static_cast<std::size_t>(panel.ranks), std::string(width, '.'));
  for (const Box& box : panel.boxes) {
    const std::size_t from = column(box.begin);
    const std::size_t to = std::min(column(box.end), width);
    if (from >= to) continue;
    std::string& row = rows[static_cast<std::size_t>(box.rank)];
    std::fill(row.begin() + static_cast<std::ptrdiff_t>(from),
              row.begin() + static_cast<std::ptrdiff_t>(to), '-');
    // A label that fills its box would run into the next one.
    const std::string word = label(panel.words(box.number), to - from > 1 ? to - from - 1 : 1);
    row.replace(from, word.size(), word);
  }
  const std::size_t digits = text(panel.ranks - 1).size();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::string number = text(r);
    out += text("rank ", std::string(digits - number.size(), ' '), number, " |", rows[r], "|\n");
  }
}

}  // namespace

std::string text_chart(const Picture& picture) {
  std::string out = picture.title + "\n";
  std::vector<double> scales;
  for (const Panel& panel : picture.panels)
    scales.push_back(columns_per_second(panel, picture.columns));
  if (picture.one_scale && !scales.empty())
    std::ranges::fill(scales, *std::ranges::min_element(scales));
  for (std::size_t i = 0; i < scales.size(); ++i) {
    out += picture.panels[i].line + "\n";
    append_chart(out, picture.panels[i], scales[i]);
  }
  return out;
}

}  // namespace trireme::schedule
