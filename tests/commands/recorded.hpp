#pragma once

#include <trireme/commands/report/run_events.hpp>

#include <support/temporary_folder.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// Events of runs from events.jsonl, for tests that need facts of a run without depending on the
/// wording of its log.
namespace trireme::commands {

/// Events of a run; empty without a file.
inline std::vector<RunEvent> recorded_events(const testing::TemporaryFolder& folder,
                                             const std::string& run) {
  const std::string path = folder.file(run + "/events.jsonl");
  if (!std::filesystem::exists(path)) return {};
  return read_events(path).events;
}

inline RunHistory recorded_run(const testing::TemporaryFolder& folder, const std::string& run) {
  return run_history(recorded_events(folder, run), 0, std::nullopt);
}

/// The run's last job; an empty one if there is none.
inline RunJob recorded_job(const testing::TemporaryFolder& folder, const std::string& run) {
  const RunHistory history = recorded_run(folder, run);
  return history.jobs.empty() ? RunJob{} : history.jobs.back();
}

/// The last event of a kind.
template <class E>
std::optional<E> recorded_last(const testing::TemporaryFolder& folder, const std::string& run) {
  std::optional<E> found;
  for (const RunEvent& entry : recorded_events(folder, run))
    if (const E* event = std::get_if<E>(&entry.event)) found = *event;
  return found;
}

/// The warnings of the last job.
inline std::vector<std::string> recorded_warnings(const testing::TemporaryFolder& folder,
                                                  const std::string& run) {
  std::vector<std::string> found;
  for (const RunEvent& entry : recorded_events(folder, run)) {
    if (std::holds_alternative<events::Start>(entry.event)) found.clear();
    if (const auto* warning = std::get_if<events::Warning>(&entry.event))
      found.push_back(warning->message);
  }
  return found;
}

}  // namespace trireme::commands
