#pragma once

#include <trireme/deck/config.hpp>

namespace trireme::testing {

/// A layout with these axis sizes; stages in chunks are placed round robin.
inline deck::ParallelConfig layout_of(int pipeline, int chunks = 1, int tensor = 1) {
  deck::ParallelConfig p;
  p.pipeline = pipeline;
  p.chunks = chunks;
  p.tensor = tensor;
  if (chunks > 1) p.schedule = ScheduleKind::interleaved;
  return p;
}

}  // namespace trireme::testing
