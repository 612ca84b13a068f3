// server_events.jsonl: one line that describes each job's servers, and one line per event.
#include <trireme/train/server_record.hpp>

#include <trireme/base/check.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/train/metrics.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

namespace trireme::train {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ServerEvent::Kind;

/// Header line of a job that begins after step `step`: describes the job's servers.
std::string header(const deck::ParallelConfig& p, std::int64_t step) {
  return Json{{"first_step", step + 1},
              {"workers", p.data},
              {"staleness", p.staleness},
              {"updates", name_of(p.updates)}}
      .dump();
}

std::optional<std::int64_t> number_in(const Json& line, const char* name) {
  const Json value = line.is_object() ? line.value(name, Json()) : Json();
  return value.is_number_integer() ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

/// Member `name`; "" if it is missing or not a string.
std::string text_in(const Json& line, const char* name) {
  const Json value = line.is_object() ? line.value(name, Json()) : Json();
  return value.is_string() ? value.get<std::string>() : "";
}

/// The event of a line; std::nullopt for a header or a truncated line.
std::optional<ServerEvent> event_in(const Json& line) {
  const auto step = number_in(line, "step");
  if (!step) return std::nullopt;
  const bool fetch = text_in(line, "event") == "fetch";
  const std::int64_t worker =
      std::clamp<std::int64_t>(number_in(line, "worker").value_or(-1), -1, 1 << 30);
  return ServerEvent{fetch ? Kind::fetch : Kind::update, static_cast<int>(worker), *step};
}

/// The lines of events up to step `step`, and of headers whose first step is at most `step`.
std::string lines_up_to(const std::string& path, std::int64_t step) {
  std::string kept;
  if (!std::filesystem::exists(path)) return kept;
  std::istringstream in(io::read_text_file(path, record_limit_bytes));
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, false);
    const auto event = event_in(json);
    const auto first = number_in(json, "first_step");
    if ((event && event->step <= step) || (first && *first <= step)) kept += line + '\n';
  }
  return kept;
}

}  // namespace

ServerRecord::ServerRecord(const deck::Config& config, std::int64_t step)
    : path_(config.run.directory + "/server_events.jsonl") {
  std::filesystem::create_directories(config.run.directory);
  const std::string kept = step > 0 ? lines_up_to(path_, step) : "";
  if (step == 0) move_aside(path_, config.run.directory, "server_events");
  io::replace_file(path_, kept + header(config.parallel, step) + '\n');
  file_.open(path_, std::ios::app);
  check(file_.good(), "cannot write ", path_, "; is the folder writable?");
}

void ServerRecord::write(const ServerEvent& event, std::int64_t lacks) {
  const bool fetch = event.kind == Kind::fetch;
  Json line{{"event", fetch ? "fetch" : "update"}, {"step", event.step}};
  if (event.worker >= 0) line["worker"] = event.worker;
  if (fetch) line["lacks"] = lacks;
  file_ << line.dump() << '\n' << std::flush;
  check(file_.good(), "cannot write ", path_, "; is the disk full?");
}

std::vector<ServerEvent> read_record(const deck::ParallelConfig& p, std::int64_t step) {
  check_usage(std::filesystem::exists(p.replay), "[parallel] replay = \"", p.replay,
              "\": no such file; choose the server_events.jsonl of a run");
  std::istringstream in(io::read_text_file(p.replay, record_limit_bytes));
  std::vector<ServerEvent> events;
  bool fits = true;
  std::string found;
  std::int64_t first_step = 0;
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (const auto first = number_in(json, "first_step")) {
      const auto workers = number_in(json, "workers").value_or(0);
      const auto staleness = number_in(json, "staleness").value_or(0);
      const std::string updates = text_in(json, "updates");
      if (first_step == 0) first_step = *first;
      fits = workers == p.data && staleness <= p.staleness && updates == name_of(p.updates);
      if (!fits)
        found =
            text(workers, " workers, staleness = ", staleness, " and updates = \"", updates, "\"");
      continue;
    }
    const auto event = event_in(json);
    if (!event || event->step <= step) continue;
    check_usage(fits, p.replay, " is the record of a run with ", found, ", but this run has ",
                p.data, " workers, staleness = ", p.staleness, " and updates = \"",
                name_of(p.updates), "\"; choose the values of the recorded run");
    check_usage(event->worker < p.data &&
                    (event->worker >= 0) ==
                        (event->kind == Kind::fetch || p.updates == ServerUpdates::push),
                p.replay, ": ", line, " is not an event of these servers");
    events.push_back(*event);
  }
  check_usage(first_step > 0, p.replay, " is not a record of servers; choose the ",
              "server_events.jsonl of a run");
  check_usage(first_step <= step + 1, p.replay, " begins with step ", first_step,
              ", but this run begins with step ", step + 1, "; start from the checkpoint of step ",
              first_step - 1);
  return events;
}

}  // namespace trireme::train
