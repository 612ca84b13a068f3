#include <trireme/base/log.hpp>
#include <trireme/train/requests.hpp>

#include <filesystem>

namespace trireme::train {
namespace {

/// A job's time limit counts from the start of its processes.
const Clock::time_point process_start = Clock::now();

/// Many ranks may share the file system, and steps may take milliseconds.
constexpr auto between_looks = std::chrono::milliseconds(500);

}  // namespace

Requests::Requests(const deck::RunConfig& config) : config_(config) {}

void Requests::begin_steps() {
  steps_ = 0;
  steps_began_ = looked_ = Clock::now();
}

Request Requests::ask(bool first_rank, Seconds saving, double next_steps) {
  ++steps_;
  Request request;
  request.stop = signals_.caught() != 0 || out_of_time(saving, next_steps) ? 1 : 0;
  if (const auto now = Clock::now(); first_rank && now - looked_ >= between_looks) {
    looked_ = now;
    if (take("stop")) request.stop = 1;
    if (take("checkpoint")) request.checkpoint = 1;
  }
  return request;
}

void Requests::end(bool first_rank) const {
  if (!first_rank) return;
  for (const char* name : {"stop", "checkpoint"}) take(name);
}

bool Requests::out_of_time(Seconds saving, double next_steps) const {
  if (config_.time_limit <= 0) return false;
  const auto now = Clock::now();
  const double per_step = seconds(now - steps_began_) / static_cast<double>(steps_);
  return seconds(now - process_start) + next_steps * per_step + saving > config_.time_limit;
}

bool Requests::take(const char* name) const {
  const std::filesystem::path path = std::filesystem::path(config_.directory) / name;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  if (!std::filesystem::remove(path, error))
    log::warn(text(path.string(), ": cannot be removed", error ? ": " + error.message() : "",
                   "; it is obeyed again and again until it is"));
  say("found ", path.string());
  return true;
}

}  // namespace trireme::train
