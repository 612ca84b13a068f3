// Timelines as pictures: headings, colours and labels.
#include <trireme/schedule/draw.hpp>

#include <trireme/base/text.hpp>
#include <trireme/schedule/overlap.hpp>
#include <trireme/schedule/picture.hpp>

#include <algorithm>

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

BoxWords words_of(const Event& e, const ProgramLayout& layout) {
  const std::string letter(1, letter_of(e.instr.op));
  BoxWords words{{},
                 text(e.instr.micro % layout.micro_batches),
                 text("rank ", e.rank, ", ", to_string(e.instr))};
  const std::string label = letter + words.number;
  if (layout.chunks > 1) words.labels = {text(label, ".", layout.chunk_of(e.instr.stage))};
  words.labels.insert(words.labels.end(), {label, letter});
  return words;
}

/// The other passes of a shared vocabulary take next to no time.
bool is_drawn(Op op) {
  return is_pass(op) || op == Op::logits || op == Op::evaluate_logits || op == Op::logits_gradient;
}

/// Refers to the timeline.
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
  panel.words = [&t](std::size_t i) { return words_of(t.events[i], t.layout); };
  panel.digits = text(t.layout.micro_batches - 1).size();
  panel.label_width = panel.digits + (t.layout.chunks > 1 ? 3 : 1);
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

}  // namespace trireme::schedule
