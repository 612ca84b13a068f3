// Requests to a run: signals, the time limit, and files in the run's directory.
#include <trireme/train/requests.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>

namespace trireme::train {
namespace {

constexpr std::array<int, 3> signals{SIGTERM, SIGUSR1, SIGINT};
// Space for a signal's frame with the state of all vector and matrix registers.
constexpr std::size_t stack_bytes = 256 * 1024;

volatile std::sig_atomic_t last_signal = 0;

// Values for the signal handler's message.
volatile std::sig_atomic_t speaks = 0;
volatile std::sig_atomic_t rewrites = 0;
std::atomic<std::int64_t> step_under_way = 0;  // 0: none yet
std::atomic<bool> stops_after_it = false;
std::atomic<std::int64_t> interrupted_at =
    0;  // time of the first SIGINT, in ticks of Clock; 0: none
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// A buffer for a message. Signal handlers must not allocate memory.
struct Message {
  std::array<char, 256> bytes;
  std::size_t size = 0;

  void add(std::string_view words) {
    for (const char c : words)
      if (size < bytes.size()) bytes.at(size++) = c;
  }
  void add(std::int64_t number) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.begin(), digits.end(), number).ptr;
    add(std::string_view(digits.begin(), end));
  }
  void write() const {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, bytes.data(), size);
  }
};

void say_that_it_stops() {
  Message message;
  message.add(rewrites != 0 ? "\r\033[K" : "");
  message.add("trireme: stopping after ");
  if (stops_after_it) {
    message.add("step ");
    message.add(step_under_way);
  } else {
    message.add(step_under_way == 0 ? "the first step" : "the steps under way");
  }
  message.add(" with a checkpoint; press Ctrl-C again to abort at once\n");
  message.write();
}

/// SIGINTs within this time count as one Ctrl-C: a launcher may repeat the terminal's signal.
constexpr auto same_key = std::chrono::seconds(1);

void remember_signal(int signal) {
  const int error = errno;
  if (signal == SIGINT) {
    const std::int64_t now = Clock::now().time_since_epoch().count();
    std::int64_t first = 0;
    if (interrupted_at.compare_exchange_strong(first, now)) {
      if (speaks != 0) say_that_it_stops();
    } else if (Clock::duration(now - first) > same_key) {
      std::signal(SIGINT, SIG_DFL);
      raise(SIGINT);  // delivered when this handler returns
    }
  }
  last_signal = signal;
  errno = error;
}

/// Origin of the time limit.
const Clock::time_point process_start = Clock::now();

/// Shortest time between two searches for request files, which load a shared file system.
constexpr auto between_looks = std::chrono::milliseconds(500);

}  // namespace

StopSignals::StopSignals() : stack_(stack_bytes) {
  last_signal = 0;
  step_under_way = 0;
  stops_after_it = false;
  interrupted_at = 0;
  speaks = log::speaking() ? 1 : 0;
  rewrites = log::on_terminal() ? 1 : 0;
  stack_t stack{};
  stack.ss_sp = stack_.data();
  stack.ss_size = stack_.size();
  check(sigaltstack(&stack, &former_stack_) == 0, "cannot set a stack for signals");
  struct sigaction action {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &action, &former_[i]);
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &held, &former_mask_);  // a signal that came earlier is caught now
}

StopSignals::~StopSignals() {
  pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &former_[i], nullptr);
  sigaltstack(&former_stack_, nullptr);
}

int StopSignals::caught() const {
  return static_cast<int>(last_signal);
}

Requests::Requests(const deck::RunConfig& config) : config_(config) {}

void Requests::begin_steps() {
  steps_ = 0;
  steps_began_ = looked_ = Clock::now();
}

void Requests::begin_step(std::int64_t step, bool may_be_last) {
  step_under_way = step;
  stops_after_it = may_be_last;
}

Request Requests::ask(bool first_rank, Seconds saving, double next_steps) {
  ++steps_;
  Request request;
  if (out_of_time(saving, next_steps)) request.stop = stop_because(events::StopCause::time_limit);
  if (signals_.caught() != 0) request.stop = stop_because(events::StopCause::signal);
  if (const auto now = Clock::now(); first_rank && now - looked_ >= between_looks) {
    looked_ = now;
    if (take("stop")) request.stop = stop_because(events::StopCause::stop_file);
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
                   "; remove it, or every job will obey it"));
  say("found ", path.string());
  return true;
}

}  // namespace trireme::train
