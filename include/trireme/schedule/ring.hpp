#pragma once

#include <trireme/layout/ring.hpp>
#include <trireme/schedule/picture.hpp>

#include <vector>

namespace trireme::schedule {

/// A step of a rank in a forward pass of attention.
struct RingStep {
  int rank = 0;
  int step = 0;
  int owner = 0;              ///< owner of the keys
  double begin = 0, end = 0;  ///< in visible (query, key) pairs
};

/// The steps of all ranks. A rank begins a step when it has computed the previous step and holds
/// the block of keys and values, and its next rank holds the previous block; messages take no time.
std::vector<RingStep> play(const layout::AttentionRing& ring);

/// The ring as a chart: boxes have the number and the colour of the keys' owner.
Picture ring_picture(const layout::AttentionRing& ring);

/// Fraction of all ranks' time without computation.
double idle_share(const std::vector<RingStep>& steps);

}  // namespace trireme::schedule
