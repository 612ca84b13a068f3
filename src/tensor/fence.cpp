#include <trireme/tensor/fence.hpp>

#include <atomic>
#include <utility>

namespace trireme {
namespace {

std::atomic<std::int64_t> fences{0};

Waiter& waiter() {
  static Waiter one;
  return one;
}

void wait_for(const Exec& exec, [[maybe_unused]] const char* reason) {
#if KOKKOS_VERSION >= 30500
  exec.fence(reason);
#else
  exec.fence();
#endif
}

}  // namespace

void fence(const Exec& exec, const char* reason) {
  ++fences;
  if (waiter()) {
    Event event;
    event.record(exec);
    waiter()([&event] { return event.done(); }, reason);
  }
  wait_for(exec, reason);
}

void finish_copy(const Exec& exec) {
  wait_for(exec, "the end of a copy");
}

void fence(const Event& event, const char* reason) {
  if (event.done()) return;
  wait_until([&event] { return event.done(); }, reason);
}

void wait_until(const std::function<bool()>& done, const char* reason) {
  ++fences;
  if (waiter()) return waiter()(done, reason);
  while (!done()) {
  }
}

std::int64_t fence_count() {
  return fences.load();
}

void set_waiter(Waiter wait) {
  waiter() = std::move(wait);
}

}  // namespace trireme
