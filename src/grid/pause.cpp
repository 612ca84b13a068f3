#include <trireme/grid/pause.hpp>

#include <trireme/base/process.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/grid/threads.hpp>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace trireme::grid {
namespace {

/// Number of polls before a rank sleeps, if ranks outnumber cores.
constexpr int looks_before_sleep = 20;
constexpr std::chrono::microseconds sleep{50};

bool cores_are_short = false;

}  // namespace

void Pause::operator()() {
  if (!cores_are_short || looks_ < looks_before_sleep) {
    ++looks_;
    sched_yield();
  } else {
    std::this_thread::sleep_for(sleep);
  }
}

bool outnumber(std::span<const std::int64_t> groups, std::size_t mine, std::int64_t cores) {
  return std::ranges::count(groups, groups[mine]) > cores;
}

void find_shared_cores(Communicator& world) {
  const std::string cores = bound_cores();
  const std::size_t group = std::hash<std::string>{}(this_process().host + ' ' + cores);
  const auto groups = world.all_gather(static_cast<std::int64_t>(group), "cores of the ranks");
  cores_are_short =
      outnumber(groups, static_cast<std::size_t>(world.rank()), std::ranges::count(cores, '1'));
}

}  // namespace trireme::grid
