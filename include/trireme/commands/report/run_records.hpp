#pragma once

#include <trireme/train/metrics.hpp>

#include <string>
#include <vector>

namespace trireme::commands {

/// What a metrics.jsonl holds.
struct RunRecords {
  std::vector<train::Metrics> steps;  ///< ascending; numbers that were not finite are NaN
  bool torn = false;  ///< the last line, without its end, was left out: a kill tears it
};

/// Reads it back. UsageError with line, value and remedy for any other damage.
RunRecords read_records(const std::string& path);

}  // namespace trireme::commands
