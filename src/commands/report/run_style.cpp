// The style sheet of a report, which is part of its HTML file.
#include <trireme/commands/report/run_report.hpp>

namespace trireme::commands {
namespace {

constexpr const char* style = R"(
:root {
  color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #1d2129; --soft: #5a6170; --line: #e3e5e9;
  --first: #2458a6; --second: #b4540a; --earlier: #8b93a1;
  --checkpoint: #1f7a50; --restart: #7440b0; --skipped: #c02f2f; --idle: #dee1e6;
  --run-1: #2458a6; --run-2: #b4540a; --run-3: #1f7a50; --run-4: #7440b0;
  --run-5: #c02f2f; --run-6: #0d7a8c; --run-7: #8a6d00; --run-8: #ad3a7f;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --card: #1c1f25; --ink: #e6e8ec; --soft: #a2a9b6; --line: #30353e;
    --first: #7fb0f5; --second: #f0a35e; --earlier: #737c8b;
    --checkpoint: #58c08f; --restart: #bb94ee; --skipped: #ff7b72; --idle: #3a404b;
    --run-1: #7fb0f5; --run-2: #f0a35e; --run-3: #58c08f; --run-4: #bb94ee;
    --run-5: #ff7b72; --run-6: #4cc4d6; --run-7: #d9c15a; --run-8: #e58ac0;
  }
}
.first { --of: var(--first); } .second { --of: var(--second); } .earlier { --of: var(--earlier); }
.run-1 { --of: var(--run-1); } .run-2 { --of: var(--run-2); } .run-3 { --of: var(--run-3); }
.run-4 { --of: var(--run-4); } .run-5 { --of: var(--run-5); } .run-6 { --of: var(--run-6); }
.run-7 { --of: var(--run-7); } .run-8 { --of: var(--run-8); }
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 75rem; padding: 1.5rem clamp(0.75rem, 3vw, 2.5rem) 3rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums;
}
h1 { margin: 0; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 2.25rem 0 0.75rem; font-size: 1.15rem; }
h3 { margin: 1.25rem 0 0.4rem; font-size: 0.95rem; }
footer { margin-top: 2.5rem; font-size: 0.85rem; }
p { margin: 0.25rem 0; }
.soft, figcaption span { color: var(--soft); }
.state { margin-top: 0.5rem; font-weight: 600; }
.state.open { color: var(--second); }
.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr)); gap: 0.75rem;
  margin: 1.25rem 0 0;
}
.figures div {
  padding: 0.7rem 0.9rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px;
}
.figures dt { color: var(--soft); font-size: 0.85rem; }
.figures dd { margin: 0; font-size: 1.3rem; font-weight: 600; line-height: 1.3; }
.figures dd small {
  display: block; color: var(--soft); font-size: 0.8rem; font-weight: 400; line-height: 1.35;
}
.notes { margin: 1rem 0 0; padding: 0.6rem 1rem; border-left: 3px solid var(--second); }
.notes li { margin-left: 1rem; }
.notes ul { margin: 0; padding: 0; }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0.9rem; }
.charts .wide { grid-column: 1 / -1; }
figure {
  margin: 0; padding: 0.8rem 1rem 0.6rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; break-inside: avoid;
}
figcaption { display: flex; flex-wrap: wrap; gap: 0.1rem 0.6rem; font-size: 0.92rem; }
.none { font-size: 0.85rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; margin-left: auto; }
.key::before {
  content: ""; display: inline-block; width: 1.1em; height: 0.2em; margin-right: 0.4em;
  vertical-align: middle; border-radius: 2px; background: currentColor;
}
.key { color: var(--of); }
.legend .key.earlier { color: var(--soft); }
.marks { display: flex; flex-wrap: wrap; gap: 0 1.25rem; margin: 0 0 0.6rem; font-size: 0.85rem; }
.marks .checkpoint::before, .marks .restart::before, .marks .skipped::before {
  width: 0.2em; height: 1em;
}
.marks .checkpoint { color: var(--checkpoint); }
.marks .restart { color: var(--restart); }
.marks .skipped { color: var(--skipped); }
.plot {
  position: relative; height: 12.5rem; margin: 0.7rem 1.3rem 2.9rem 4.7rem;
}
.wide .plot { height: 19rem; }
.plot svg { display: block; width: 100%; height: 100%; overflow: visible; }
.plot path { fill: none; vector-effect: non-scaling-stroke; }
.plot .grid { stroke: var(--line); stroke-width: 1; }
.plot .line { stroke-width: 1.8; stroke-linejoin: round; stroke: var(--of); }
.plot .raw { stroke-width: 0.8; stroke-linejoin: round; stroke: var(--of); opacity: 0.5; }
.plot .dots { stroke-width: 6; stroke-linecap: round; stroke: var(--of); }
.plot .band { opacity: 0.22; fill: var(--of); }
.plot .cells { fill: var(--first); }
.colours {
  display: inline-block; width: 6em; height: 0.7em; border: 1px solid var(--line);
  background: linear-gradient(to right, transparent, var(--first));
}
.plot .line.earlier { stroke-width: 1; }
.plot .dots.earlier { stroke-width: 3; }
.plot .mark { stroke-width: 1.5; }
.plot .mark.checkpoint { stroke: var(--checkpoint); stroke-width: 2; }
.plot .mark.restart { stroke: var(--restart); stroke-dasharray: 4 3; }
.plot .mark.skipped { stroke: var(--skipped); stroke-width: 2; }
.hit { fill: transparent; }
.hit:hover { fill: var(--soft); fill-opacity: 0.22; }
.y-labels span, .x-labels span {
  position: absolute; color: var(--soft); font-size: 0.78rem; line-height: 1; white-space: nowrap;
}
.y-labels { position: absolute; top: 0; bottom: 0; right: 100%; }
.y-labels span { right: 0.5rem; transform: translateY(-50%); }
.x-labels { position: absolute; top: 100%; left: 0; right: 0; }
.x-labels span { top: 0.45rem; transform: translateX(-50%); }
.x-labels b, .y-title {
  position: absolute; color: var(--soft); font-size: 0.78rem; font-weight: 400; line-height: 1.2;
  white-space: nowrap;
}
.x-labels b { top: 1.6rem; left: 50%; transform: translateX(-50%); }
.y-title {
  right: calc(100% + 3.5rem); top: 50%; writing-mode: vertical-rl;
  transform: translateY(-50%) rotate(180deg);
}
.scale { grid-column: 1 / -1; }
.scale input, .switch > input { accent-color: var(--first); margin: 0 0.3rem 0 0; }
.scale label, .switch > label { margin-right: 1rem; font-size: 0.85rem; color: var(--soft); }
.switch > .soft { font-size: 0.85rem; }
.switch > .charts { margin-top: 0.4rem; }
.scale figure { margin-top: 0.35rem; }
#linear:checked ~ .logarithmic, #logarithmic:checked ~ .linear { display: none; }
#by-steps:checked ~ .charts .by:not(.by-steps), #by-tokens:checked ~ .charts .by:not(.by-tokens),
#by-time:checked ~ .charts .by:not(.by-time) { display: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
caption {
  padding-bottom: 0.3rem; color: var(--soft); text-align: left; font-size: 0.85rem;
}
th, td {
  padding: 0.3rem 1.4rem 0.3rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top;
}
td:first-child { white-space: nowrap; }
.stacked td, .stacked th { padding-right: 1rem; }
.texts table { width: 100%; table-layout: fixed; }
.texts th:first-child { width: 6rem; }
.texts th:nth-child(2) { width: 30%; }
.texts td { white-space: pre-wrap; overflow-wrap: anywhere; }
.texts .image {
  display: inline-block; width: 4rem; height: 4rem; margin-right: 0.5rem; vertical-align: top;
  background-size: cover;
}
.said td:first-child { white-space: normal; }
td + td:not(.number) { min-width: 8rem; }
.stacked td + td:not(.number) { min-width: 0; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.number { text-align: right; white-space: nowrap; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1.25rem; margin: 0 0 1rem; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
pre {
  margin: 0; padding: 0.9rem 1rem; overflow-x: auto; background: var(--card);
  border: 1px solid var(--line); border-radius: 6px;
  font: 0.82rem/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
/* The schedule's picture is made for white paper: here it takes the page's colours. */
.timeline { overflow-x: auto; padding: 0.5rem; }
.timeline svg { display: block; height: auto; min-width: 40rem; max-width: 100%; }
.timeline svg > rect:first-of-type { fill: transparent; }
.timeline rect[fill="#dee1e6"] { fill: var(--idle); }
.timeline text[fill="#1d2129"]:not([text-anchor="middle"]) { fill: var(--ink); }
@media (max-width: 46rem) {
  .charts { grid-template-columns: minmax(0, 1fr); }
  .plot { height: 11rem; }
  .wide .plot { height: 14rem; }
  .legend { margin-left: 0; }
  .figures { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0.5rem; }
  .facts { grid-template-columns: 1fr; gap: 0; }
  .facts dd { margin-bottom: 0.4rem; }
  figure { padding: 0.7rem 0.6rem 0.5rem; }
  /* A row of a wide table becomes a block with the column's title before each cell. */
  .stacked table, .stacked tbody, .stacked caption { display: block; }
  .stacked thead { display: none; }
  .stacked tr { display: grid; padding: 0.5rem 0; border-bottom: 1px solid var(--line); }
  .stacked td {
    display: grid; grid-template-columns: 9rem minmax(0, 1fr); gap: 0.5rem; padding: 0.1rem 0; border: 0;
    text-align: left; white-space: normal; overflow-wrap: anywhere;
  }
  .stacked td::before { content: attr(data-label); color: var(--soft); }
  .stacked td:empty { display: none; }
  .texts th:first-child { width: 4rem; }
}
@media print {
  body { max-width: none; padding: 0; background: #ffffff; font-size: 10pt; }
  .scale input, .scale label, .switch > input, .switch > label, .switch > .soft { display: none; }
  .scroll, pre, .timeline { overflow: visible; }
  pre { white-space: pre-wrap; }
  .timeline svg { min-width: 0; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)";

}  // namespace

std::string report_style() {
  return style;
}

}  // namespace trireme::commands
