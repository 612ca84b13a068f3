#pragma once

#include <trireme/base/text.hpp>
#include <trireme/tensor/views.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "support/recorded_device/recorded_device.hpp"

namespace trireme::testing {

/// Runs a test in every order of streams, and reports the device's errors.
inline void in_all_schedules(const std::function<void()>& body, int schedules = 12) {
  for (int schedule = 0; schedule < schedules; ++schedule) {
    SCOPED_TRACE(text("schedule ", schedule));
    recorded_device().restart(schedule);
    body();
    for (const std::string& problem : recorded_device().problems_at_end()) ADD_FAILURE() << problem;
    if (::testing::Test::HasFailure()) return;
  }
}

template <class T>
MemoryRange range(const T* x, std::int64_t n) {
  return {x, static_cast<std::size_t>(n) * sizeof(T)};
}

/// A kernel that writes x[i] = first + i.
template <class T>
void count_up(const Exec& exec, T* x, std::int64_t n, double first) {
  recorded_device().launch(number_of(exec.cuda_stream()), "count_up", {{}, {range(x, n)}}, [=] {
    for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(first + static_cast<double>(i));
  });
}

/// A kernel that keeps the values that it reads.
template <class T>
void observe(const Exec& exec, const T* x, std::int64_t n, std::vector<double>& seen) {
  recorded_device().launch(number_of(exec.cuda_stream()), "observe", {{range(x, n)}, {}},
                           [=, &seen] { seen.assign(x, x + n); });
}

inline std::vector<double> counted(std::int64_t n, double first) {
  std::vector<double> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = first + static_cast<double>(i);
  return x;
}

}  // namespace trireme::testing
