// Draws timelines as text: one line per rank, one letter and number per computation.
#include <trireme/base/text.hpp>
#include <trireme/schedule/draw.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::schedule {

std::string drawing_title(const Timeline& timeline, const DrawOptions& options) {
  const auto count = [](int n, std::string_view one, std::string_view more) {
    return text(n, " ", n == 1 ? one : more);
  };
  const ProgramLayout& layout = timeline.layout;
  std::string out = options.schedule.empty() ? "" : options.schedule + ": ";
  out += count(layout.ranks, "pipeline rank", "pipeline ranks") + ", " +
         count(layout.micro_batches, "micro-batch", "micro-batches");
  if (layout.chunks > 1) out += text(", ", layout.chunks, " chunks");
  return out;
}

std::string idle_line(const Timeline& timeline, const std::string& label, bool seconds) {
  std::string out =
      text(label, label.empty() ? "" : ": ", "idle ", fixed(100 * timeline.idle_share(), 1), " %");
  const Seconds span = timeline.span();
  if (seconds)
    out += span < 1 ? text(", ", fixed(1e3 * span, 2), " ms") : text(", ", fixed(span, 3), " s");
  return out;
}

namespace {

char letter_of(Op op) {
  return "FEBIW"[static_cast<std::size_t>(op)];
}

/// The longest label that fits into `width` characters.
std::string label(const Instr& i, const ProgramLayout& layout, std::size_t width) {
  const std::string micro = text(letter_of(i.op), i.micro);
  const std::string full = layout.chunks > 1 ? text(micro, ".", layout.chunk_of(i.stage)) : micro;
  for (const auto& candidate : {full, micro})
    if (candidate.size() <= width) return candidate;
  return std::string(1, letter_of(i.op));
}

/// Columns per unit of time: enough for a label in the shortest computation, if the whole chart
/// then fits.
double columns_per_second(const Timeline& t, int most) {
  Seconds shortest = t.span();
  for (const Event& e : t.events)
    if (is_compute(e.instr.op) && e.end > e.begin) shortest = std::min(shortest, e.end - e.begin);
  if (t.span() <= 0) return 1;
  const auto digits = text(t.layout.micro_batches - 1).size();
  const double wanted = static_cast<double>(digits + (t.layout.chunks > 1 ? 4 : 2));
  const double fits = static_cast<double>(most) / t.span() * shortest;
  // Whole columns, so that equal computations look equal.
  return std::min(wanted, fits >= 1 ? std::floor(fits) : fits) / shortest;
}

void append_chart(std::string& out, const Timeline& t, double scale) {
  const Seconds begin = t.begin();
  const auto column = [&](Seconds at) {
    return static_cast<std::size_t>(std::lround((at - begin) * scale));
  };
  const std::size_t width = column(t.end());
  std::vector<std::string> rows(static_cast<std::size_t>(t.layout.ranks), std::string(width, '.'));
  for (const Event& e : t.events) {
    if (!is_compute(e.instr.op)) continue;
    const std::size_t from = column(e.begin);
    const std::size_t to = std::min(column(e.end), width);
    if (from >= to) continue;
    std::string& row = rows[static_cast<std::size_t>(e.rank)];
    std::fill(row.begin() + static_cast<std::ptrdiff_t>(from),
              row.begin() + static_cast<std::ptrdiff_t>(to), '-');
    // A label that fills its box would run into the next one.
    const std::string word = label(e.instr, t.layout, to - from > 1 ? to - from - 1 : 1);
    row.replace(from, word.size(), word);
  }
  const std::size_t digits = text(t.layout.ranks - 1).size();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::string number = text(r);
    out += text("rank ", std::string(digits - number.size(), ' '), number, " |", rows[r], "|\n");
  }
}

}  // namespace

std::string text_chart(const Timeline& timeline, const DrawOptions& options) {
  const Timeline* measured = options.measured;
  std::string out = drawing_title(timeline, options) + "\n";
  out += idle_line(timeline, measured ? "predicted" : "", options.seconds) + "\n";
  double scale = columns_per_second(timeline, options.columns);
  double other = measured ? columns_per_second(*measured, options.columns) : scale;
  if (options.seconds && measured) scale = other = std::min(scale, other);
  append_chart(out, timeline, scale);
  if (!measured) return out;
  out += idle_line(*measured, "measured", true) + "\n";
  append_chart(out, *measured, other);
  return out;
}

}  // namespace trireme::schedule
