// The ring of attention, simulated with the work of each step, and its chart.
#include <trireme/schedule/ring.hpp>

#include <trireme/base/text.hpp>

#include <algorithm>

namespace trireme::schedule {
namespace {

double work_of(const layout::AttentionRing& ring, int rank, int step) {
  double pairs = 0;
  for (const layout::ChunkPair& pair : ring.pairs(rank, step))
    pairs += static_cast<double>(pair.seen);
  return pairs;
}

std::string title_of(const layout::AttentionRing& ring) {
  std::string title =
      text("ring of attention: ", ring.ranks, " context ranks, ", with_commas(ring.sequence),
           " tokens, ", ring.causal ? "causal" : "not causal");
  if (ring.window > 0) title += text(", window ", with_commas(ring.window));
  return title;
}

}  // namespace

std::vector<RingStep> play(const layout::AttentionRing& ring) {
  const auto ranks = static_cast<std::size_t>(ring.ranks);
  std::vector<RingStep> steps;
  std::vector<double> begins(ranks, 0), ends(ranks, 0);
  for (int step = 0; step < ring.ranks; ++step) {
    for (int rank = 0; rank < ring.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      ends[r] = begins[r] + work_of(ring, rank, step);
      steps.push_back({rank, step, ring.owner(rank, step), begins[r], ends[r]});
    }
    const std::vector<double> sent = begins;
    for (std::size_t r = 0; r < ranks; ++r)
      begins[r] = std::max({ends[r], sent[(r + ranks - 1) % ranks], sent[(r + 1) % ranks]});
  }
  return steps;
}

double idle_share(const std::vector<RingStep>& steps) {
  double busy = 0, end = 0;
  int ranks = 0;
  for (const RingStep& s : steps) {
    busy += s.end - s.begin;
    end = std::max(end, s.end);
    ranks = std::max(ranks, s.rank + 1);
  }
  return end > 0 ? 1 - busy / (end * ranks) : 0;
}

Picture ring_picture(const layout::AttentionRing& ring) {
  const std::vector<RingStep> steps = play(ring);
  Picture picture;
  picture.title = title_of(ring);
  picture.remark = "each block of keys and values has its colour and the number of its rank";
  Panel panel;
  panel.line = text("forward pass: idle ", fixed(100 * idle_share(steps), 1), " %");
  panel.ranks = ring.ranks;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const RingStep& s = steps[i];
    panel.end = std::max(panel.end, s.end);
    const double part = s.owner / std::max(1.0, ring.ranks - 1.0);
    if (s.end > s.begin)
      panel.boxes.push_back({s.rank, s.begin, s.end, mix(colours::blue, colours::amber, part), i});
  }
  panel.words = [steps](std::size_t i) {
    const RingStep& s = steps[i];
    const std::string owner = text(s.owner);
    return BoxWords{{"K" + owner, owner, "K"},
                    owner,
                    text("rank ", s.rank, ", step ", s.step, ": keys and values of rank ", owner)};
  };
  panel.digits = text(ring.ranks - 1).size();
  panel.label_width = panel.digits + 1;
  picture.panels.push_back(std::move(panel));
  return picture;
}

}  // namespace trireme::schedule
