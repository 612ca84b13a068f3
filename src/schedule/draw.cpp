// Drawings of timelines as text and as SVG, and traces in Chrome's JSON format.
#include <trireme/schedule/draw.hpp>

#include <trireme/base/text.hpp>
#include <trireme/schedule/overlap.hpp>
#include <trireme/schedule/picture.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

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
  if (layout.overlaps_steps()) out += text(", ", layout.steps, " steps without a flush");
  if (layout.shares_vocabulary) out += ", shared vocabulary";
  return out;
}

std::string idle_line(const Timeline& timeline, const std::string& label, bool seconds) {
  std::string out =
      text(label, label.empty() ? "" : ": ", "idle ", fixed(100 * timeline.idle_share(), 1), " %",
           timeline.layout.overlaps_steps() ? " in the repeated step" : "");
  const Seconds span =
      timeline.layout.overlaps_steps() ? steady_step(timeline).seconds : timeline.span();
  if (seconds)
    out += span < 1 ? text(", ", fixed(1e3 * span, 2), " ms") : text(", ", fixed(span, 3), " s");
  return out;
}

namespace {

char letter_of(Op op) {
  return "FEBIWLSSCTU"[static_cast<std::size_t>(op)];
}

Colour colour_of(const Instr& i, const ProgramLayout& layout) {
  const Colour base = !is_pass(i.op)                                ? colours::violet
                      : i.op == Op::backward_weight                 ? colours::amber
                      : i.op == Op::forward || i.op == Op::evaluate ? colours::blue
                                                                    : colours::green;
  if (layout.overlaps_steps())
    return mix(base, colours::white, 0.4 * (layout.step_of(i.micro) % 2));
  if (layout.chunks == 1) return base;
  return mix(base, colours::white, 0.62 * layout.chunk_of(i.stage) / (layout.chunks - 1));
}

BoxWords box_words(const Event& e, const ProgramLayout& layout) {
  const std::string letter(1, letter_of(e.instr.op));
  BoxWords words{{},
                 text(e.instr.micro % layout.micro_batches),
                 text("rank ", e.rank, ", ", to_string(e.instr))};
  const std::string label = letter + words.number;
  if (layout.chunks > 1) words.labels = {text(label, ".", layout.chunk_of(e.instr.stage))};
  words.labels.insert(words.labels.end(), {label, letter});
  return words;
}

/// Whether charts show the operation.
bool is_drawn(Op op) {
  return is_pass(op) || op == Op::logits || op == Op::evaluate_logits || op == Op::logits_gradient;
}

/// The panel of a timeline, which must outlive the panel.
Panel panel_of(const Timeline& t, std::string line) {
  Panel panel;
  panel.line = std::move(line);
  panel.ranks = t.layout.ranks;
  panel.begin = t.begin();
  panel.end = t.end();
  for (std::size_t i = 0; i < t.events.size(); ++i) {
    const Event& e = t.events[i];
    if (is_drawn(e.instr.op) && e.end > e.begin)
      panel.boxes.push_back({e.rank, e.begin, e.end, colour_of(e.instr, t.layout), i});
  }
  panel.words = [&t](std::size_t i) { return box_words(t.events[i], t.layout); };
  panel.digits = text(t.layout.micro_batches - 1).size();
  panel.label_width =
      panel.digits + 1 + (t.layout.chunks > 1 ? 1 + text(t.layout.chunks - 1).size() : 0);
  return panel;
}

Picture picture_of(const Timeline& timeline, const DrawOptions& options) {
  const Timeline* measured = options.measured;
  Picture picture;
  picture.title = drawing_title(timeline, options);
  picture.columns = options.columns;
  picture.boxes = options.boxes;
  picture.panels.push_back(
      panel_of(timeline, idle_line(timeline, measured ? "predicted" : "", options.seconds)));
  if (measured)
    picture.panels.push_back(panel_of(*measured, idle_line(*measured, "measured", true)));
  picture.one_scale = options.seconds && measured;
  const auto entry = [&](Op op, const Colour& colour, const char* words) {
    if (std::ranges::any_of(timeline.events, [op](const Event& e) { return e.instr.op == op; }))
      picture.legend.emplace_back(colour, words);
  };
  entry(Op::evaluate, colours::blue, "evaluate");
  entry(Op::forward, colours::blue, "forward");
  entry(Op::backward, colours::green, "backward");
  entry(Op::backward_input, colours::green, "backward, input half");
  entry(Op::backward_weight, colours::amber, "backward, weight half");
  entry(Op::logits, colours::violet, "logits and their table's gradient");
  if (timeline.layout.chunks > 1) picture.remark = "lighter: later chunks";
  if (timeline.layout.overlaps_steps()) picture.remark = "lighter: every second step";
  return picture;
}

}  // namespace

std::string svg(const Timeline& timeline, const DrawOptions& options) {
  return svg(picture_of(timeline, options));
}

std::string text_chart(const Timeline& timeline, const DrawOptions& options) {
  return text_chart(picture_of(timeline, options));
}

// Draws pictures as text: one line per rank, one label per computation.

namespace {

/// The longest label of at most `width` characters; the shortest label if none fits.
std::string label(const BoxWords& words, std::size_t width) {
  for (const std::string& label : words.labels)
    if (label.size() <= width) return label;
  return words.labels.back();
}

/// Columns per unit of time: enough for a label in the shortest computation, if the chart then has
/// at most `most` columns, otherwise fewer.
double columns_per_second(const Panel& panel, int most) {
  if (panel.span() <= 0) return 1;
  const Seconds shortest = panel.shortest();
  const double wanted = static_cast<double>(panel.label_width + 1);
  const double fits = static_cast<double>(most) / panel.span() * shortest;
  // If possible, the shortest computation has a whole number of columns.
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
    // A label that fills its box would touch the next label.
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

// Draws pictures as SVG: one box per computation, or columns of one pixel in the mean colour of
// their computations if boxes would be too narrow or too many.

namespace {

using colours::idle;

constexpr double most_width = 1600;    // width of the chart in pixels
constexpr double unit_width = 22;      // width of the shortest computation, if there is space
constexpr double narrowest_box = 1.5;  // narrower boxes are blended
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

/// One chart: rows of boxes on a grey background.
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
      const double gap = std::min(0.8, width * 0.2);
      out_ += text("<rect x=\"", px(x + gap / 2), "\" y=\"", px(y_of(box.rank)), "\" width=\"",
                   px(width - gap), "\" height=\"", px(height_), "\" fill=\"", hex(box.colour),
                   "\"><title>", words.title, "</title></rect>\n");
      // Font size with which any number of the panel fits into this box.
      const double size = std::min(
          {12.0, height_ * 0.62, (width - 2) / (0.6 * static_cast<double>(panel_.digits))});
      if (size >= 6.5)
        out_ += label(x + width / 2, y_of(box.rank) + height_ / 2 + size * 0.36, size, words.number,
                      text(" text-anchor=\"middle\" fill=\"", ink_on(box.colour), "\""));
    }
  }

  /// Draws columns of one pixel in the mean colour of their computations. Adjacent columns of equal
  /// colour form one box, and all boxes of a colour form one path.
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
          mean[i] = std::round(value / 17) * 17;  // 16 shades per component make longer runs
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
  double pitch_;   ///< distance between rows
  double height_;  ///< height of a box
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

namespace {

/// A JSON string (RFC 8259, section 7). Bytes beyond ASCII are already UTF-8.
std::string in_quotes(std::string_view raw) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += hex[byte >> 4];
      out += hex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

class Trace {
 public:
  void add(const Timeline& t, const std::string& name, double microseconds) {
    ++process_;
    metadata("process_name", 0, name);
    for (Rank r = 0; r < t.layout.ranks; ++r) metadata("thread_name", r, text("rank ", r));
    for (const Event& e : t.events) {
      const double begin = e.begin * microseconds;
      const double end = e.end * microseconds;
      if (is_receive(e.instr.op)) {
        // Transfers are asynchronous slices: they may overlap computations and other transfers of
        // their rank, and ordinary slices of one track must not overlap.
        ++transfer_;
        slice("b", e, begin, text(",\"id\":", transfer_));
        slice("e", e, end, text(",\"id\":", transfer_));
      } else if (!is_send(e.instr.op)) {
        slice("X", e, begin, text(",\"dur\":", end - begin));
      }
    }
  }
  std::string json() const {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  void append(const std::string& event) {
    if (!events_.empty()) events_ += ",\n";
    events_ += event;
  }
  void metadata(std::string_view what, Rank thread, const std::string& name) {
    append(text("{\"name\":\"", what, "\",\"ph\":\"M\",\"pid\":", process_, ",\"tid\":", thread,
                ",\"args\":{\"name\":", in_quotes(name), "}}"));
  }
  void slice(std::string_view phase, const Event& e, double at, const std::string& more) {
    append(text("{\"name\":", in_quotes(to_string(e.instr)), ",\"cat\":",
                in_quotes(name_of(e.instr.op)), ",\"ph\":\"", phase, "\",\"pid\":", process_,
                ",\"tid\":", e.rank, ",\"ts\":", at, more, ",\"args\":{\"stage\":", e.instr.stage,
                ",\"micro\":", e.instr.micro, ",\"position\":", e.position, "}}"));
  }

  std::string events_;
  int process_ = 0;
  int transfer_ = 0;
};

}  // namespace

std::string perfetto_trace(const Timeline& timeline, const DrawOptions& options) {
  Trace trace;
  const std::string title = drawing_title(timeline, options);
  const std::string label = options.measured ? "predicted" : "";
  trace.add(timeline, title + "; " + idle_line(timeline, label, options.seconds),
            options.seconds ? 1e6 : 1e3);
  if (options.measured)
    trace.add(*options.measured, title + "; " + idle_line(*options.measured, "measured", true),
              1e6);
  return trace.json();
}

}  // namespace trireme::schedule
