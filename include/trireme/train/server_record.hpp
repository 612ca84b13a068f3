#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/train/server_order.hpp>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace trireme::train {

/// server_events.jsonl in the run's folder: the events of the servers in order, one JSON object per
/// line. A restart keeps the events up to the checkpoint's step.
class ServerRecord {
 public:
  /// Continues the record after step `step`; if `step` is 0, moves an existing record aside.
  ServerRecord(const deck::Config& config, std::int64_t step);

  /// `lacks`: ServerOrder::lacks() of a fetch; not used for an update.
  void write(const ServerEvent& event, std::int64_t lacks);

 private:
  std::string path_;
  std::ofstream file_;
};

/// The events after step `step` of the record that the deck replays. UsageError if the file is
/// missing or not a record, begins after step `step` + 1, or is of a run with another number of
/// workers, another value of `updates` or a larger staleness.
std::vector<ServerEvent> read_record(const deck::ParallelConfig& parallel, std::int64_t step);

}  // namespace trireme::train
