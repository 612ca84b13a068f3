#pragma once

#include "train/layouts.hpp"

#include <string>
#include <vector>

/// Compares workers with parameter servers to replicas with all-reduce.
namespace trireme::train {

class Served : public Layouts {
 protected:
  static std::vector<std::string> served(std::int64_t servers,
                                         const std::vector<std::string>& more = {}) {
    std::vector<std::string> keys{"parallel.strategy=server", text("parallel.servers=", servers)};
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  }

  /// Expects that workers and servers on all ranks give the bits of all-reduce on as many ranks as
  /// there are workers.
  void expect_the_bits_of_all_reduce(Layout layout, int servers) {
    const int model = layout.tensor * layout.pipeline;
    if (runtime().ranks() % model != 0 || runtime().ranks() <= servers * model) return;
    layout.data = runtime().ranks() / model - servers;
    SCOPED_TRACE(text(layout.name(), ", servers ", servers));
    const Outcome expected = run_on_some(layout);
    layout.more = served(servers, layout.more);
    const Outcome found = run(layout, runtime().world());
    if (runtime().rank() > 0) return;
    EXPECT_EQ(found.trace, expected.trace);
    EXPECT_EQ(found.weights, expected.weights);
  }
};

}  // namespace trireme::train
