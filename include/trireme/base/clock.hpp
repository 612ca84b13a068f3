#pragma once

#include <trireme/base/types.hpp>

#include <chrono>

namespace trireme {

/// Clock of all measured times: steady, valid within one process.
using Clock = std::chrono::steady_clock;

inline Seconds seconds(Clock::duration duration) {
  return std::chrono::duration<Seconds>(duration).count();
}
inline Seconds seconds_since(Clock::time_point begin) {
  return seconds(Clock::now() - begin);
}

}  // namespace trireme
