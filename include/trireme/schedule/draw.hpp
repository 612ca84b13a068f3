#pragma once

#include <trireme/schedule/timeline.hpp>

#include <cstddef>
#include <string>

namespace trireme::schedule {

struct DrawOptions {
  std::string schedule;                ///< for the title: "1f1b"
  const Timeline* measured = nullptr;  ///< drawn below, each with its idle share
  bool seconds = false;       ///< the first timeline's times are seconds too, not units of a cost
  int columns = 180;          ///< of a text chart, at most
  std::size_t boxes = 20000;  ///< of a timeline in a picture, one by one; more are blended
};

/// A picture in the style of Narayanan et al. 2021, figures 3 and 4: a row for each pipeline rank,
/// forward passes blue, backward passes (or their input halves) green, weight halves amber, later
/// chunks lighter, idle grey, with the number of the micro-batch where it fits. A self-contained
/// SVG of at most 1600 pixels of chart, however large the program: boxes narrower than 1.5 pixels
/// are blended. Two timelines in seconds share one scale.
std::string svg(const Timeline& timeline, const DrawOptions& options = {});

/// The same in letters: F3 forward, B3 backward, I3 and W3 its halves, E3 evaluate of micro-batch
/// 3,
/// `.` idle; F3.1 where a rank has chunks.
std::string text_chart(const Timeline& timeline, const DrawOptions& options = {});

/// The timelines in the JSON trace format of Chrome, which ui.perfetto.dev opens: a process for
/// each timeline, a track for each rank, transfers as asynchronous slices. A unit of a timeline
/// that is not in seconds is drawn as a millisecond.
std::string perfetto_trace(const Timeline& timeline, const DrawOptions& options = {});

/// "1f1b: 4 pipeline ranks, 8 micro-batches, 2 chunks", and "predicted: idle 27.3 %": what the
/// drawings say above the charts.
std::string drawing_title(const Timeline& timeline, const DrawOptions& options);
std::string idle_line(const Timeline& timeline, const std::string& label, bool seconds);

}  // namespace trireme::schedule
