#include <trireme/base/check.hpp>
#include <trireme/commands/report/run_events.hpp>
#include <trireme/commands/report/run_report.hpp>

#include "memory_file.hpp"

#include <cstdint>
#include <optional>

using namespace trireme;

/// The input is a metrics.jsonl and an events.jsonl at once. Anything but an Error is a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  static const fuzz::MemoryFile file;
  file.replace(input, size);
  try {
    commands::read_records(file.path());
  } catch (const Error&) {
  }
  try {
    commands::run_history(commands::read_events(file.path()).events, 4, std::nullopt);
  } catch (const Error&) {
  }
  return 0;
}
