#pragma once

#include <trireme/schedule/timeline.hpp>

#include <cstddef>
#include <string>

namespace trireme::schedule {

struct DrawOptions {
  std::string schedule;                ///< name in the title: "1f1b"
  const Timeline* measured = nullptr;  ///< second timeline, drawn below the first; null: none
  bool seconds = false;                ///< the first timeline is also in seconds, not in cost units
  int columns = 180;                   ///< maximum width of a text chart in characters
  std::size_t boxes = 20000;  ///< maximum per timeline of a picture; with more, boxes are blended
};

/// A self-contained SVG in the style of Narayanan et al. 2021, figures 3 and 4, with one row per
/// pipeline rank and a legend of the colours. Charts are at most 1600 pixels wide. Boxes are
/// blended if they are too narrow or too many.
std::string svg(const Timeline& timeline, const DrawOptions& options = {});

/// The timelines as text: F3 is the forward pass of micro-batch 3, B3 its backward pass, I3 and W3
/// the halves of B3, E3 its evaluation. If ranks have several chunks, F3.1 is the forward pass of
/// chunk 1. With a shared vocabulary, S3 are the logits of micro-batch 3, and T3 is the gradient of
/// the output table. `.` is idle time.
std::string text_chart(const Timeline& timeline, const DrawOptions& options = {});

/// The timelines in Chrome's JSON trace format, which ui.perfetto.dev opens: one process per
/// timeline, one track per rank, transfers as asynchronous slices. One unit of a timeline that is
/// not in seconds is drawn as one millisecond.
std::string perfetto_trace(const Timeline& timeline, const DrawOptions& options = {});

/// Title of a drawing, such as "1f1b: 4 pipeline ranks, 8 micro-batches, 2 chunks"; and heading of
/// a chart, such as "predicted: idle 27.3 %".
std::string drawing_title(const Timeline& timeline, const DrawOptions& options);
std::string idle_line(const Timeline& timeline, const std::string& label, bool seconds);

}  // namespace trireme::schedule
