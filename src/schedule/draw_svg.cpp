// Draws timelines as an SVG: one box per computation, or columns of one pixel in the mean colour of
// their computations if boxes would be too narrow or too many.
#include <trireme/base/text.hpp>
#include <trireme/schedule/draw.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace trireme::schedule {
namespace {

constexpr double most_width = 1600;    // of the chart, in pixels
constexpr double unit_width = 22;      // of the shortest computation, if there is room
constexpr double narrowest_box = 1.5;  // below it, boxes are blended
constexpr double left = 72;
constexpr double margin = 16;

using Colour = std::array<double, 3>;
constexpr Colour white = {255, 255, 255};
constexpr Colour idle = {222, 225, 230};
constexpr Colour blue = {43, 99, 178};
constexpr Colour green = {38, 138, 84};
constexpr Colour amber = {222, 146, 38};

Colour mix(const Colour& a, const Colour& b, double part_of_b) {
  Colour out{};
  for (std::size_t i = 0; i < 3; ++i) out[i] = a[i] + (b[i] - a[i]) * part_of_b;
  return out;
}

Colour colour_of(const Instr& i, const ProgramLayout& layout) {
  const Colour base = i.op == Op::backward_weight                   ? amber
                      : i.op == Op::forward || i.op == Op::evaluate ? blue
                                                                    : green;
  if (layout.chunks == 1) return base;
  return mix(base, white, 0.62 * layout.chunk_of(i.stage) / (layout.chunks - 1));
}

std::string hex(const Colour& c) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out = "#";
  for (const double part : c) {
    const auto byte = static_cast<std::size_t>(std::lround(std::clamp(part, 0.0, 255.0)));
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

/// A readable text colour: dark on light colours (relative luminance, ITU-R BT.709).
std::string_view ink_on(const Colour& c) {
  return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2] > 140 ? "#1d2129" : "#ffffff";
}

std::string escaped(std::string_view raw) {
  std::string out;
  for (const char c : raw) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

/// A length in pixels, rounded to hundredths.
std::string px(double length) {
  return text(std::round(length * 100) / 100);
}

std::string label(double x, double y, double size, std::string_view words,
                  std::string_view more = "") {
  return text("<text x=\"", px(x), "\" y=\"", px(y), "\" font-size=\"", px(size), "\"", more, ">",
              escaped(words), "</text>\n");
}

/// One chart: rows of boxes over a grey ground.
class Chart {
 public:
  Chart(const Timeline& t, double scale, double top, std::size_t most_boxes)
      : t_(t),
        begin_(t.begin()),
        span_(t.span()),
        scale_(scale),
        top_(top),
        most_boxes_(most_boxes),
        pitch_(std::clamp(720.0 / t.layout.ranks, 5.0, 24.0)),
        height_(pitch_ - (pitch_ >= 12  ? 2
                          : pitch_ >= 8 ? 1
                                        : 0.5)) {}

  double bottom() const { return top_ + pitch_ * t_.layout.ranks; }

  std::string draw() {
    draw_rows();
    Seconds shortest = span_;
    std::size_t boxes = 0;
    for (const Event& e : t_.events)
      if (is_compute(e.instr.op) && e.end > e.begin) {
        ++boxes;
        shortest = std::min(shortest, e.end - e.begin);
      }
    if (boxes <= most_boxes_ && shortest * scale_ >= narrowest_box)
      draw_boxes();
    else
      draw_blended();
    return std::move(out_);
  }

 private:
  double x_of(Seconds at) const { return left + (at - begin_) * scale_; }
  double y_of(Rank r) const { return top_ + pitch_ * r; }

  void draw_rows() {
    const int step = pitch_ >= 11 ? 1 : static_cast<int>(std::ceil(11 / pitch_));
    const double size = std::min(12.0, step * pitch_ * 0.75);
    for (Rank r = 0; r < t_.layout.ranks; ++r) {
      out_ +=
          text("<rect x=\"", px(left), "\" y=\"", px(y_of(r)), "\" width=\"", px(span_ * scale_),
               "\" height=\"", px(height_), "\" fill=\"", hex(idle), "\"/>\n");
      if (r % step == 0)
        out_ += label(left - 8, y_of(r) + height_ / 2 + size * 0.35, size, text("rank ", r),
                      " text-anchor=\"end\" fill=\"#1d2129\"");
    }
  }

  void draw_boxes() {
    const double digits = static_cast<double>(text(t_.layout.micro_batches - 1).size());
    for (const Event& e : t_.events) {
      if (!is_compute(e.instr.op)) continue;
      const double x = x_of(e.begin);
      const double width = (e.end - e.begin) * scale_;
      const Colour colour = colour_of(e.instr, t_.layout);
      // A gap between neighbours if there is room for one.
      const double gap = std::min(0.8, width * 0.2);
      out_ += text("<rect x=\"", px(x + gap / 2), "\" y=\"", px(y_of(e.rank)), "\" width=\"",
                   px(width - gap), "\" height=\"", px(height_), "\" fill=\"", hex(colour),
                   "\"><title>rank ", e.rank, ", ", to_string(e.instr), "</title></rect>\n");
      // The largest size that fits every micro-batch's number; omitted if too small.
      const double size = std::min({12.0, height_ * 0.62, (width - 2) / (0.6 * digits)});
      if (size >= 6.5)
        out_ += label(x + width / 2, y_of(e.rank) + height_ / 2 + size * 0.36, size,
                      text(e.instr.micro),
                      text(" text-anchor=\"middle\" fill=\"", ink_on(colour), "\""));
    }
  }

  /// Draws columns of one pixel in the mean colour of their computations. Adjacent columns of one
  /// colour form one box, and all boxes of one colour one path.
  void draw_blended() {
    const auto columns = static_cast<std::size_t>(std::ceil(span_ * scale_));
    struct Column {
      Colour sum{};
      double covered = 0;
    };
    std::vector<std::vector<Column>> rows(static_cast<std::size_t>(t_.layout.ranks),
                                          std::vector<Column>(columns));
    for (const Event& e : t_.events) {
      if (!is_compute(e.instr.op)) continue;
      const Colour colour = colour_of(e.instr, t_.layout);
      const double from = x_of(e.begin) - left;
      const double to = x_of(e.end) - left;
      auto& row = rows[static_cast<std::size_t>(e.rank)];
      for (auto c = static_cast<std::size_t>(from); c < columns && static_cast<double>(c) < to;
           ++c) {
        const double part =
            std::min(to, static_cast<double>(c) + 1) - std::max(from, static_cast<double>(c));
        for (std::size_t i = 0; i < 3; ++i) row[c].sum[i] += part * colour[i];
        row[c].covered += part;
      }
    }
    std::map<std::string, std::string> paths;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto colour_at = [&](std::size_t c) {
        const Column& column = rows[r][c];
        if (column.covered < 1.0 / 32) return std::string();
        Colour mean{};
        for (std::size_t i = 0; i < 3; ++i) {
          const double value = column.sum[i] + (1 - std::min(column.covered, 1.0)) * idle[i];
          mean[i] = std::round(value / 17) * 17;  // 16 shades make longer runs
        }
        return hex(mean);
      };
      for (std::size_t c = 0, end = 0; c < columns; c = end) {
        const std::string colour = colour_at(c);
        end = c + 1;
        while (end < columns && colour_at(end) == colour) ++end;
        if (colour.empty()) continue;
        paths[colour] +=
            text("M", left + static_cast<double>(c), " ", px(y_of(static_cast<Rank>(r))), "h",
                 end - c, "v", px(height_), "h-", end - c, "z");
      }
    }
    for (const auto& [colour, path] : paths)
      out_ += text("<path fill=\"", colour, "\" d=\"", path, "\"/>\n");
  }

  const Timeline& t_;
  const Seconds begin_;  ///< kept, because Timeline::begin looks at every event
  const Seconds span_;
  double scale_;
  double top_;
  std::size_t most_boxes_;
  double pitch_;   ///< from row to row
  double height_;  ///< of a box
  std::string out_;
};

/// Pixels per unit of time.
double scale_of(const Timeline& t) {
  Seconds shortest = t.span();
  for (const Event& e : t.events)
    if (is_compute(e.instr.op) && e.end > e.begin) shortest = std::min(shortest, e.end - e.begin);
  if (t.span() <= 0) return 1;
  return std::min(unit_width / shortest, most_width / t.span());
}

std::string legend(const Timeline& t, double y) {
  std::vector<std::pair<Colour, std::string>> entries;
  const auto has = [&](Op op) {
    return std::any_of(t.events.begin(), t.events.end(),
                       [op](const Event& e) { return e.instr.op == op; });
  };
  if (has(Op::evaluate)) entries.push_back({blue, "evaluate"});
  if (has(Op::forward)) entries.push_back({blue, "forward"});
  if (has(Op::backward)) entries.push_back({green, "backward"});
  if (has(Op::backward_input)) entries.push_back({green, "backward, input half"});
  if (has(Op::backward_weight)) entries.push_back({amber, "backward, weight half"});
  entries.push_back({idle, "idle"});
  std::string out;
  double x = left;
  for (const auto& [colour, words] : entries) {
    out += text("<rect x=\"", px(x), "\" y=\"", px(y - 10), "\" width=\"12\" height=\"12\" fill=\"",
                hex(colour), "\"/>\n", label(x + 17, y, 12, words, " fill=\"#1d2129\""));
    x += 17 + 6.8 * static_cast<double>(words.size()) + 18;
  }
  if (t.layout.chunks > 1) out += label(x, y, 12, "lighter: later chunks", " fill=\"#1d2129\"");
  return out;
}

}  // namespace

std::string svg(const Timeline& timeline, const DrawOptions& options) {
  struct Panel {
    const Timeline& timeline;
    std::string line;
    double scale;
  };
  std::vector<Panel> panels{
      {timeline, idle_line(timeline, options.measured ? "predicted" : "", options.seconds),
       scale_of(timeline)}};
  if (options.measured) {
    panels.push_back({*options.measured, idle_line(*options.measured, "measured", true),
                      scale_of(*options.measured)});
    if (options.seconds)
      panels[0].scale = panels[1].scale = std::min(panels[0].scale, panels[1].scale);
  }
  std::string body = label(left, margin + 14, 16, drawing_title(timeline, options),
                           " font-weight=\"bold\" fill=\"#1d2129\"");
  double y = margin + 14;
  double width = 640;  // enough for title and legend
  for (const Panel& p : panels) {
    y += 22;
    body += label(left, y, 13, p.line, " fill=\"#1d2129\"");
    Chart chart(p.timeline, p.scale, y + 10, options.boxes);
    body += chart.draw();
    y = chart.bottom() + 6;
    width = std::max(width, left + p.timeline.span() * p.scale + margin);
  }
  body += label(left, y + 12, 12, "time →", " fill=\"#1d2129\"");
  body += legend(timeline, y + 34);
  const double height = y + 34 + margin;
  return text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", px(width), "\" height=\"",
              px(height), "\" viewBox=\"0 0 ", px(width), " ", px(height),
              "\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n",
              "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n", body, "</svg>\n");
}

}  // namespace trireme::schedule
