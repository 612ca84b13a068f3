// Writes events.jsonl. Every line is built in memory and appended by one write(), so that lines of
// several processes do not mix and a kill can only truncate the last line. The next job repairs the
// last line.
#include <trireme/base/events.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/log.hpp>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace trireme::events {
namespace {

using Json = nlohmann::ordered_json;

struct State {
  std::string path;
  std::string former = "unknown";
  bool all = false;
  int file = -1;  ///< descriptor; −1 unless this process writes all events
  std::atomic<std::int64_t> step{0};
  std::atomic<bool> stopped{false};
  std::atomic<bool> failed{false};
};

State& state() {
  static State instance;
  return instance;
}

template <class T>
void add(Json& line, const char* key, const T& value) {
  line[key] = value;
}
template <class T>
void add(Json& line, const char* key, const std::optional<T>& value) {
  if (value) line[key] = *value;
}
void add(Json& line, const char* key, StopCause value) {
  line[key] = name_of(value);
}

template <class E>
std::string line_of(const E& event, std::string_view time, std::int64_t step) {
  Json line{{"time", time}, {"step", step}, {"event", E::name}};
  std::apply([&](const auto&... field) { (add(line, field.first, event.*field.second), ...); },
             E::fields);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// End of the last job in `content`, in the words of former_end().
std::string end_of_last_job(const std::string& content) {
  std::string end = "unknown";
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t stop = std::min(content.find('\n', at), content.size());
    const Json line = Json::parse(content.begin() + static_cast<std::ptrdiff_t>(at),
                                  content.begin() + static_cast<std::ptrdiff_t>(stop), nullptr,
                                  /*allow_exceptions=*/false);
    at = stop + 1;
    if (!line.is_object()) continue;
    const Json event = line.value("event", Json());
    if (event == Start::name) end = "killed";
    if (event == End::name) end = "finished";
    if (event == Stop::name && end == "killed" && line.value("cause", Json()).is_string())
      end = line["cause"];
  }
  return end;
}

/// If the last line of the file has no line feed, appends one, or removes the line if it is not a
/// JSON object. `content`: content of the file.
void repair(const std::string& path, const std::string& content) {
  if (content.empty() || content.back() == '\n') return;
  const std::size_t begin = content.rfind('\n') + 1;  // 0 if there is no line feed
  if (Json::parse(content.substr(begin), nullptr, false).is_object()) {
    std::ofstream(path, std::ios::app | std::ios::binary) << '\n';
    return;
  }
  std::error_code error;
  std::filesystem::resize_file(path, begin, error);
  check(!error, "cannot write ", path, ": ", error.message());
}

int open_to_append(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
}

/// Appends a line. Returns false, with errno, and removes a partial line if this fails.
bool append(int file, const std::string& line) {
  const off_t before = ::lseek(file, 0, SEEK_END);
  const ssize_t written = ::write(file, line.data(), line.size());
  if (written == std::ssize(line)) return true;
  const int error = written < 0 ? errno : ENOSPC;
  if (written > 0 && ::ftruncate(file, before) != 0) return false;
  errno = error;
  return false;
}

}  // namespace

std::string to_json(const Event& event, std::string_view time, std::int64_t step) {
  return std::visit([&](const auto& e) { return line_of(e, time, step); }, event);
}

void set_file(const std::string& path, bool all) {
  State& s = state();
  if (s.file >= 0) ::close(s.file);
  s.file = -1;
  s.path = path;
  s.all = all;
  s.step = 0;
  s.stopped = s.failed = false;
  s.former = "unknown";
  if (path.empty() || !all) return;
  expect_file(path, path);
  std::string content;
  {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream all_lines;
    all_lines << in.rdbuf();
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    content = std::move(all_lines).str();  // after a read error, repair() would remove lines
    check(error == std::errc::no_such_file_or_directory || (!error && content.size() == bytes),
          "cannot read ", path, "; the events of earlier jobs are in it");
  }
  repair(path, content);
  s.former = end_of_last_job(content);
  s.file = open_to_append(path);
  check(s.file >= 0, "cannot write ", path, ": ", std::strerror(errno),
        "; is the folder writable?");
}

std::string former_end() {
  return state().former;
}

void set_step(std::int64_t step) {
  state().step = step;
}

void record(const Event& event, std::optional<std::int64_t> step) {
  State& s = state();
  if (s.path.empty()) return;
  if (const Stop* stop = std::get_if<Stop>(&event)) {
    const bool only_here = stop->cause == StopCause::error || stop->cause == StopCause::watchdog;
    if (s.stopped.exchange(true) || (!s.all && !only_here)) return;
  } else if (!s.all) {
    return;
  }
  const std::string line = to_json(event, to_text(utc_now()), step.value_or(s.step)) + '\n';
  const int file = s.all ? s.file : open_to_append(s.path);
  const bool written = file >= 0 && append(file, line);
  const int error = errno;
  if (!s.all && file >= 0) ::close(file);
  if (written || s.failed.exchange(true)) return;
  log::warn(text("cannot write ", s.path, ": ", std::strerror(error),
                 "; the events of this job are incomplete"));
}

EnumWords enum_words(StopCause) {
  static constexpr auto all = words_of<StopCause>("time_limit", "signal", "stop_file", "not_finite",
                                                  "error", "watchdog", "audit");
  return all;
}

}  // namespace trireme::events
