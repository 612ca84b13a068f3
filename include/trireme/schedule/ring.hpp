#pragma once

#include <trireme/layout/ring.hpp>
#include <trireme/schedule/picture.hpp>

#include <vector>

namespace trireme::schedule {

/// A step of a rank in a forward pass of attention.
struct RingStep {
  int rank = 0;
  int step = 0;
  int owner = 0;              ///< of the keys
  double begin = 0, end = 0;  ///< in pairs of a query and a key that it sees
};

/// The steps of all ranks. A rank begins a step when it has computed the one before, has the block
/// of keys and values, and its next rank has the block before; messages take no time.
std::vector<RingStep> play(const layout::AttentionRing& ring);

/// The ring as a chart: boxes have the number of the keys' owner and its colour.
Picture ring_picture(const layout::AttentionRing& ring);

/// Fraction of the time of all ranks without computation.
double idle_share(const std::vector<RingStep>& steps);

}  // namespace trireme::schedule
