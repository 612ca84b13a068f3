#pragma once

#include <trireme/schedule/timeline.hpp>

#include <cstddef>
#include <string>

namespace trireme::schedule {

struct DrawOptions {
  std::string schedule;                ///< for the title: "1f1b"
  const Timeline* measured = nullptr;  ///< drawn below the first; each chart has its idle share
  bool seconds = false;                ///< the first timeline is also in seconds, not in cost units
  int columns = 180;                   ///< maximum width of a text chart
  std::size_t boxes = 20000;           ///< boxes per timeline of a picture; more are blended
};

/// A picture in the style of Narayanan et al. 2021, figures 3 and 4, with one row per pipeline
/// rank. Forward passes are blue, backward passes (or their input halves) green, weight halves
/// amber, passes of a shared vocabulary violet, later chunks lighter, idle time grey. Boxes show
/// the micro-batch's number if it fits. The result is a self-contained SVG with a chart of at most
/// 1600 pixels for any program: boxes narrower than 1.5 pixels are blended. Two timelines in
/// seconds share one scale.
std::string svg(const Timeline& timeline, const DrawOptions& options = {});

/// The timelines as text: F3 is the forward pass of micro-batch 3, B3 its backward pass, I3 and W3
/// the halves of B3, E3 its evaluation; F3.1 on ranks with chunks. With a shared vocabulary, S3 are
/// its logits and T3 their table's gradient. `.` is idle time.
std::string text_chart(const Timeline& timeline, const DrawOptions& options = {});

/// The timelines in Chrome's JSON trace format, which ui.perfetto.dev opens: one process per
/// timeline, one track per rank, transfers as asynchronous slices. One unit of a timeline that is
/// not in seconds is drawn as one millisecond.
std::string perfetto_trace(const Timeline& timeline, const DrawOptions& options = {});

/// Headings of the charts: "1f1b: 4 pipeline ranks, 8 micro-batches, 2 chunks", and "predicted:
/// idle 27.3 %".
std::string drawing_title(const Timeline& timeline, const DrawOptions& options);
std::string idle_line(const Timeline& timeline, const std::string& label, bool seconds);

}  // namespace trireme::schedule
