#include <trireme/io/temporaries.hpp>

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <mutex>

namespace trireme::io {
namespace {

/// Read by a signal handler: fixed memory, and a flag that is set after the path is complete.
struct Slot {
  std::atomic<bool> used{false};
  std::array<char, PATH_MAX> path{};
};

/// More than anybody writes at a time: the most are an export's shards. Untouched ones take no
/// memory.
std::array<Slot, 512> slots;
std::mutex slots_mutex;

extern "C" void remove_and_die(int signal_number) {
  for (const auto& slot : slots)
    if (slot.used.load()) ::unlink(slot.path.data());
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

}  // namespace

void remember_temporary(const std::string& path) {
  const std::lock_guard lock(slots_mutex);
  for (auto& slot : slots) {
    if (slot.used.load() || path.size() >= slot.path.size()) continue;
    std::memcpy(slot.path.data(), path.c_str(), path.size() + 1);
    slot.used.store(true);
    return;
  }
}

void forget_temporary(const std::string& path) {
  const std::lock_guard lock(slots_mutex);
  for (auto& slot : slots)
    if (slot.used.load() && path == slot.path.data()) slot.used.store(false);
}

void remove_temporaries_on_signals() {
  struct sigaction action {};
  action.sa_handler = remove_and_die;
  action.sa_flags = SA_NODEFER;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction former {};
    ::sigaction(number, nullptr, &former);
    if (former.sa_handler != SIG_IGN) ::sigaction(number, &action, nullptr);  // nohup stays nohup
  }
}

}  // namespace trireme::io
