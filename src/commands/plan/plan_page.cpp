// The page of `trireme plan`: a chart of memory and time, stacked bars of a step's seconds, and
// tables of layouts.
#include <trireme/base/text.hpp>
#include <trireme/commands/plan/plan_report.hpp>
#include <trireme/commands/report/markup.hpp>
#include <trireme/commands/report/run_report.hpp>
#include <trireme/commands/report/ticks.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/table.hpp>
#include <trireme/deck/value.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace trireme::commands {
namespace {

using plan::Candidate;
using plan::Cause;

constexpr double picture_width = 1000;
constexpr double picture_height = 1000;

constexpr const char* style = R"(
:root {
  --compute: #2458a6; --tensor: #7440b0; --pipeline: #1f7a50; --data: #b4540a; --bubble: #a9b0bb;
  --optimizer: #8a6d00; --host: #c02f2f;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --compute: #7fb0f5; --tensor: #bb94ee; --pipeline: #58c08f; --data: #f0a35e; --bubble: #5b6371;
    --optimizer: #d9c15a; --host: #ff7b72;
  }
}
.plot circle { vector-effect: non-scaling-stroke; }
.plot .point { stroke-width: 9; stroke-linecap: round; }
.plot .candidate { stroke: var(--earlier); }
.plot .best { stroke: var(--first); }
.plot .deck { stroke: var(--second); }
.plot .step { stroke: var(--first); stroke-width: 1.2; }
.details { margin: 0 0 0.6rem; }
summary { cursor: pointer; padding: 0.3rem 0; }
.keys { position: relative; }
.keys button {
  position: absolute; top: 0.5rem; right: 0.5rem; padding: 0.2rem 0.8rem; cursor: pointer;
  background: var(--paper); color: var(--ink); border: 1px solid var(--line); border-radius: 4px;
  font: inherit; font-size: 0.85rem;
}
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 0.35rem 0.8rem; }
.bars > * { min-width: 0; }
.bar { display: flex; height: 1.35rem; background: var(--line); border-radius: 3px; overflow: hidden; }
.bar i { display: block; height: 100%; }
.causes { display: flex; flex-wrap: wrap; gap: 0 1.1rem; margin: 0 0 0.7rem; font-size: 0.85rem; }
.causes span::before {
  content: ""; display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.4em;
  border-radius: 2px; background: var(--of);
}
@media (max-width: 46rem) { .bars { grid-template-columns: max-content 1fr; }
  .bars .number { grid-column: 2; margin-top: -0.3rem; text-align: left; } }
)";

/// The page's script: a button copies the layout's keys, or selects them if copying fails.
constexpr const char* script = R"(
for (const button of document.querySelectorAll(".keys button")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const keys = button.previousElementSibling;
    getSelection().selectAllChildren(keys);
    try {
      await navigator.clipboard.writeText(keys.textContent);
      button.textContent = "Copied";
    } catch { button.textContent = document.execCommand("copy") ? "Copied" : "Selected"; }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
)";

/// Meaning of each cause, for the legend.
constexpr std::array<const char*, plan::causes> cause_words{
    "compute: kernels of forward and backward passes",
    "tensor: messages between tensor ranks",
    "pipeline: messages between stages",
    "data: sums of gradients, gathering of weights",
    "bubble: waiting for other pipeline ranks",
    "optimizer: gradient norm and update",
    "host: waiting for the host to start kernels"};

std::string percent_of(double part, double whole) {
  return fixed(100 * part / whole, 2);
}

/// Position on a logarithmic axis, from 0 to 1.
double log_part(const Ticks& axis, double value) {
  return std::log(value / axis.low) / std::log(axis.high / axis.low);
}

/// HTML of the tick labels and of the titles of both axes. Positions of tick labels are percentages
/// of the chart's size.
std::string labels(const Ticks& x, const Ticks& y) {
  std::string out = "<div class=\"y-labels\">";
  for (const Tick& tick : y.ticks)
    out += text("<span style=\"top:", percent_of(y.high - tick.at, y.high - y.low), "%\">",
                escaped(tick.label), "</span>");
  out += "</div><div class=\"x-labels\">";
  for (const Tick& tick : x.ticks)
    out += text("<span style=\"left:", percent_of(log_part(x, tick.at), 1), "%\">",
                escaped(tick.label), "</span>");
  return out +
         "<b>seconds per step, logarithmic</b></div><b class=\"y-title\">memory of a rank, "
         "GiB</b>";
}

/// Chart of memory over time: the Pareto front as a stepped line, and layouts as points.
class FrontChart {
 public:
  explicit FrontChart(const PlanReport& report) : report_(report) {
    double low[2] = {INFINITY, INFINITY}, high[2] = {0, 0};
    const auto include = [&](const Candidate& c) {
      const double at[2] = {c.seconds(), gib(c)};
      for (int i = 0; i < 2; ++i) {
        low[i] = std::min(low[i], at[i]);
        high[i] = std::max(high[i], at[i]);
      }
    };
    for (const Candidate& c : report.found.candidates) include(c);
    for (const Candidate& c : report.found.front) include(c);
    if (report.own) include(*report.own);
    x_ = log_ticks(low[0], high[0], 6);
    y_ = round_ticks(0, high[1], 5);
  }

  std::string html() const {
    std::string svg;
    for (const Tick& tick : y_.ticks)
      svg += text("<path class=\"grid\" d=\"M0 ", y(tick.at), "H", picture_width, "\"/>");
    for (const Tick& tick : x_.ticks)
      svg += text("<path class=\"grid\" d=\"M", x(tick.at), " 0V", picture_height, "\"/>");
    svg += front_line();
    for (const Candidate& c : report_.found.candidates) svg += point(c, "candidate");
    for (const Candidate& c : report_.found.front) svg += point(c, "best");
    if (report_.own) svg += point(*report_.own, "deck");
    return text(
        "<figure class=\"wide\"><figcaption><b>Memory and time</b>"
        "<span class=\"legend\"><span class=\"key first\">Pareto front: none is both faster and "
        "smaller</span>"
        "<span class=\"key earlier\">other layouts</span>",
        report_.own ? "<span class=\"key second\">the deck's layout</span>" : "",
        "</span></figcaption><div class=\"plot\"><svg xmlns=\"http://www.w3.org/2000/svg\" "
        "viewBox=\"0 0 ",
        picture_width, " ", picture_height,
        "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Memory over time of "
        "layouts\">",
        svg, "</svg>", labels(x_, y_), "</div></figure>");
  }

 private:
  static double gib(const Candidate& c) { return static_cast<double>(c.bytes) / 0x1p30; }
  double x(double seconds) const {
    return std::round(10 * picture_width * log_part(x_, seconds)) / 10;
  }
  double y(double memory) const {
    return std::round(10 * picture_height * (y_.high - memory) / (y_.high - y_.low)) / 10;
  }
  std::string front_line() const {
    std::string path;
    for (const Candidate& c : report_.found.front)
      path += path.empty() ? text("M", x(c.seconds()), " ", y(gib(c)))
                           : text("H", x(c.seconds()), "V", y(gib(c)));
    return text("<path class=\"step\" d=\"", path, "\"/>");
  }
  std::string point(const Candidate& c, const char* kind) const {
    return text("<path class=\"point ", kind, "\" d=\"M", x(c.seconds()), " ", y(gib(c)),
                "h0\"><title>", escaped(name_of_layout(c.layout)), ": ", short_number(c.seconds()),
                " s", ", ", human_bytes(c.bytes), "</title></path>");
  }

  const PlanReport& report_;
  Ticks x_, y_;
};

std::string bar(const std::string& name, const Candidate& c, Seconds longest) {
  std::string parts;
  for (std::size_t i = 0; i < plan::causes; ++i) {
    const Seconds s = c.time.shares[i];
    if (s <= 1e-6 * c.seconds()) continue;  // only a rounding error
    const std::string_view cause = name_of(static_cast<Cause>(i));
    parts += text("<i style=\"width:", percent_of(s, longest), "%;background:var(--", cause,
                  ")\" title=\"", cause, " ", short_number(s), " s\"></i>");
  }
  return text("<span>", escaped(name), "</span><span class=\"bar\" title=\"",
              escaped(name_of_layout(c.layout)), "\">", parts, "</span><span class=\"number\">",
              short_number(c.seconds()), " s", "</span>");
}

std::string bars(const PlanReport& report) {
  Seconds longest = report.own ? report.own->seconds() : 0;
  for (std::size_t i = 0; i < report.shown(); ++i)
    longest = std::max(longest, report.found.candidates[i].seconds());
  std::string out = "<figure><div class=\"causes\">";
  for (std::size_t i = 0; i < plan::causes; ++i)
    out += text("<span style=\"--of:var(--", name_of(static_cast<Cause>(i)), ")\">", cause_words[i],
                "</span>");
  out += "</div><div class=\"bars\">";
  for (std::size_t i = 0; i < report.shown(); ++i)
    out += bar(text("layout ", i + 1), report.found.candidates[i], longest);
  if (report.own) out += bar("the deck's layout", *report.own, longest);
  return out + "</div></figure>";
}

/// The value of a key in a layout, as written in a deck.
std::string value_in(const plan::Layout& layout, const deck::Key& key) {
  deck::Config config;
  layout.set(config);
  return deck::literal(key, key.load(config));
}

/// The layout's keys as a part of a deck.
std::string deck_keys(const plan::Layout& layout) {
  std::string out;
  std::string section;
  for (const deck::Key* key : deck::layout_keys()) {
    if (key->section != section)
      out += text(out.empty() ? "" : "\n", "[", section = key->section, "]\n");
    out += text(key->name, " = ", value_in(layout, *key), "\n");
  }
  return out;
}

/// A table of layouts, the keys of each layout for copying, and the reasons for rejecting layouts.
std::string tables(const PlanReport& report) {
  std::vector<std::pair<std::string, const Candidate*>> shown;
  for (std::size_t i = 0; i < report.shown(); ++i)
    shown.emplace_back(text(i + 1), &report.found.candidates[i]);
  if (report.own) shown.emplace_back("deck", &*report.own);
  std::vector<std::string> head{"Layout"};
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, candidate] : shown) rows.push_back({name});
  std::vector<std::string> equal;
  for (const deck::Key* key : deck::layout_keys()) {
    std::vector<std::string> values;
    for (const auto& [name, candidate] : shown) values.push_back(value_in(candidate->layout, *key));
    const auto best = std::span(values).first(report.shown());
    if (std::ranges::count(best, values.front()) == std::ssize(best)) {
      equal.push_back(text(key->name, " = ", values.front()));
      continue;
    }
    head.push_back(key->name);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::erase(values[i], '"');
      rows[i].push_back(values[i]);
    }
  }
  const auto keys = static_cast<int>(head.size());
  for (const char* figure : {"Step", "Tokens/s", "MFU", "Idle", "Memory"})
    head.emplace_back(figure);
  std::string copies;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Candidate& c = *shown[i].second;
    for (std::string& figure : figures(report, c)) rows[i].push_back(std::move(figure));
    copies += text("<details class=\"details\"", i == 0 ? " open=\"open\"" : "", "><summary>",
                   i < report.shown() ? "Layout " : "Layout of the ", shown[i].first, ": ",
                   escaped(name_of_layout(c.layout)), "</summary><div class=\"keys\"><pre>",
                   escaped(deck_keys(c.layout)),
                   "</pre><button type=\"button\" hidden=\"hidden\">Copy</button></div></details>");
  }
  std::string out = "<h2>Best layouts</h2><div class=\"stacked\">" +
                    html_table("Keys that differ, and their results", head, rows, keys) + "</div>";
  if (!equal.empty())
    out +=
        text("<p class=\"soft\">Equal in the best layouts: ", escaped(join(equal, ", ")), ".</p>");
  out += "<h2>Keys for the deck</h2>" + copies;
  std::vector<std::vector<std::string>> rejected;
  for (const plan::Rejection& r : report.found.rejected)
    rejected.push_back({r.reason, with_commas(r.layouts)});
  if (!rejected.empty())
    out += "<h2>Rejected layouts</h2><div class=\"said\">" +
           html_table("Reasons", {"Reason", "Layouts"}, rejected, 1) + "</div>";
  return out;
}

}  // namespace

std::string plan_page(const PlanReport& report) {
  const std::string title = text("Layouts of ", report.deck.file_name, " on ", report.ranks,
                                 report.ranks == 1 ? " rank" : " ranks");
  const plan::SearchResult& found = report.found;
  return text(
      "<!DOCTYPE html>\n<html lang=\"en\"><head>"
      "<meta charset=\"utf-8\"/><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"/><title>",
      escaped(title), "</title><style>", report_style(), style, "</style></head><body><main><h1>",
      escaped(title), "</h1><p class=\"soft\">Machine: ", escaped(report.machine.called()),
      found.limit > 0 ? text(", ", human_bytes(found.limit), " per rank") : "", ". ",
      with_commas(found.evaluated), " layouts fit; the best ", found.candidates.size(),
      " were simulated.</p>",
      report.own_problem.empty()
          ? ""
          : text("<p>The deck's layout ", escaped(report.own_problem), "</p>"),
      "<h2>Time and memory</h2>", FrontChart(report).html(), "<h2>Seconds of a step, by cause</h2>",
      bars(report), tables(report), "</main><footer class=\"soft\">Written by trireme plan, ",
      TRIREME_VERSION, "</footer><script>", script, "</script></body></html>\n");
}

}  // namespace trireme::commands
