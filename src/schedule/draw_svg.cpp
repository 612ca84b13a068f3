// Draws pictures as an SVG: one box per computation, or columns of one pixel in the mean colour of
// their computations if boxes would be too narrow or too many.
#include <trireme/base/text.hpp>
#include <trireme/schedule/picture.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace trireme::schedule {

namespace {

using colours::idle;

constexpr double most_width = 1600;    // of the chart, in pixels
constexpr double unit_width = 22;      // of the shortest computation, if there is room
constexpr double narrowest_box = 1.5;  // below it, boxes are blended
constexpr double left = 72;
constexpr double margin = 16;

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
  Chart(const Panel& panel, double scale, double top, std::size_t most_boxes)
      : panel_(panel),
        scale_(scale),
        top_(top),
        most_boxes_(most_boxes),
        pitch_(std::clamp(720.0 / panel.ranks, 5.0, 24.0)),
        height_(pitch_ - (pitch_ >= 12  ? 2
                          : pitch_ >= 8 ? 1
                                        : 0.5)) {}

  double bottom() const { return top_ + pitch_ * panel_.ranks; }

  std::string draw() {
    draw_rows();
    if (panel_.boxes.size() <= most_boxes_ && panel_.shortest() * scale_ >= narrowest_box)
      draw_boxes();
    else
      draw_blended();
    return std::move(out_);
  }

 private:
  double x_of(Seconds at) const { return left + (at - panel_.begin) * scale_; }
  double y_of(int r) const { return top_ + pitch_ * r; }

  void draw_rows() {
    const int step = pitch_ >= 11 ? 1 : static_cast<int>(std::ceil(11 / pitch_));
    const double size = std::min(12.0, step * pitch_ * 0.75);
    for (int r = 0; r < panel_.ranks; ++r) {
      out_ += text("<rect x=\"", px(left), "\" y=\"", px(y_of(r)), "\" width=\"",
                   px(panel_.span() * scale_), "\" height=\"", px(height_), "\" fill=\"", hex(idle),
                   "\"/>\n");
      if (r % step == 0)
        out_ += label(left - 8, y_of(r) + height_ / 2 + size * 0.35, size, text("rank ", r),
                      " text-anchor=\"end\" fill=\"#1d2129\"");
    }
  }

  void draw_boxes() {
    for (const Box& box : panel_.boxes) {
      const BoxWords words = panel_.words(box.number);
      const double x = x_of(box.begin);
      const double width = (box.end - box.begin) * scale_;
      // A gap between neighbours if there is room for one.
      const double gap = std::min(0.8, width * 0.2);
      out_ += text("<rect x=\"", px(x + gap / 2), "\" y=\"", px(y_of(box.rank)), "\" width=\"",
                   px(width - gap), "\" height=\"", px(height_), "\" fill=\"", hex(box.colour),
                   "\"><title>", words.title, "</title></rect>\n");
      // The largest size that fits every number; omitted if too small.
      const double size = std::min(
          {12.0, height_ * 0.62, (width - 2) / (0.6 * static_cast<double>(panel_.digits))});
      if (size >= 6.5)
        out_ += label(x + width / 2, y_of(box.rank) + height_ / 2 + size * 0.36, size, words.number,
                      text(" text-anchor=\"middle\" fill=\"", ink_on(box.colour), "\""));
    }
  }

  /// Draws columns of one pixel in the mean colour of their computations. Adjacent columns of one
  /// colour form one box, and all boxes of one colour one path.
  void draw_blended() {
    const auto columns = static_cast<std::size_t>(std::ceil(panel_.span() * scale_));
    struct Column {
      Colour sum{};
      double covered = 0;
    };
    std::vector<std::vector<Column>> rows(static_cast<std::size_t>(panel_.ranks),
                                          std::vector<Column>(columns));
    for (const Box& box : panel_.boxes) {
      const double from = x_of(box.begin) - left;
      const double to = x_of(box.end) - left;
      auto& row = rows[static_cast<std::size_t>(box.rank)];
      for (auto c = static_cast<std::size_t>(from); c < columns && static_cast<double>(c) < to;
           ++c) {
        const double part =
            std::min(to, static_cast<double>(c) + 1) - std::max(from, static_cast<double>(c));
        for (std::size_t i = 0; i < 3; ++i) row[c].sum[i] += part * box.colour[i];
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
            text("M", left + static_cast<double>(c), " ", px(y_of(static_cast<int>(r))), "h",
                 end - c, "v", px(height_), "h-", end - c, "z");
      }
    }
    for (const auto& [colour, path] : paths)
      out_ += text("<path fill=\"", colour, "\" d=\"", path, "\"/>\n");
  }

  const Panel& panel_;
  double scale_;
  double top_;
  std::size_t most_boxes_;
  double pitch_;   ///< from row to row
  double height_;  ///< of a box
  std::string out_;
};

/// Pixels per unit of time.
double scale_of(const Panel& panel) {
  if (panel.span() <= 0) return 1;
  return std::min(unit_width / panel.shortest(), most_width / panel.span());
}

std::string legend(const Picture& picture, double y) {
  std::string out;
  double x = left;
  const auto entry = [&](const Colour& colour, std::string_view words) {
    out += text("<rect x=\"", px(x), "\" y=\"", px(y - 10), "\" width=\"12\" height=\"12\" fill=\"",
                hex(colour), "\"/>\n", label(x + 17, y, 12, words, " fill=\"#1d2129\""));
    x += 17 + 6.8 * static_cast<double>(words.size()) + 18;
  };
  for (const auto& [colour, words] : picture.legend) entry(colour, words);
  entry(idle, "idle");
  if (!picture.remark.empty()) out += label(x, y, 12, picture.remark, " fill=\"#1d2129\"");
  return out;
}

}  // namespace

std::string svg(const Picture& picture) {
  double scale = picture.panels.empty() ? 1 : scale_of(picture.panels.front());
  for (const Panel& panel : picture.panels) scale = std::min(scale, scale_of(panel));
  std::string body =
      label(left, margin + 14, 16, picture.title, " font-weight=\"bold\" fill=\"#1d2129\"");
  double y = margin + 14;
  double width = 640;  // enough for title and legend
  for (const Panel& panel : picture.panels) {
    const double own = picture.one_scale ? scale : scale_of(panel);
    y += 22;
    body += label(left, y, 13, panel.line, " fill=\"#1d2129\"");
    Chart chart(panel, own, y + 10, picture.boxes);
    body += chart.draw();
    y = chart.bottom() + 6;
    width = std::max(width, left + panel.span() * own + margin);
  }
  body += label(left, y + 12, 12, "time →", " fill=\"#1d2129\"");
  body += legend(picture, y + 34);
  const double height = y + 34 + margin;
  return text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", px(width), "\" height=\"",
              px(height), "\" viewBox=\"0 0 ", px(width), " ", px(height),
              "\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n",
              "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n", body, "</svg>\n");
}

}  // namespace trireme::schedule
