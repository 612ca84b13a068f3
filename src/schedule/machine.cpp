#include <trireme/base/check.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/player.hpp>

#include <algorithm>

namespace trireme::schedule {

Played play(const Program& program, const Cost& cost, const PlayOptions& options) {
  check(static_cast<int>(program.ranks.size()) == program.layout.ranks, "a program of ",
        program.ranks.size(), " rows for ", program.layout.ranks, " ranks");
  const auto with = [&](int send_buffers) {
    return Player(program, cost, options.transport.value_or(program.layout.transport), send_buffers)
        .run();
  };
  if (options.send_buffers > 0) return with(options.send_buffers);
  Played played = with(2);
  if (played.mistakes.empty()) return played;
  // More buffers never hurt: a search for the smallest number between what fails and what works.
  int fails = 2;
  int works = std::max(program.layout.micro_batches, 3);
  played = with(works);
  if (!played.mistakes.empty()) return played;
  while (works - fails > 1) {
    const int middle = fails + (works - fails) / 2;
    Played tried = with(middle);
    if (tried.mistakes.empty()) {
      works = middle;
      played = std::move(tried);
    } else {
      fails = middle;
    }
  }
  return played;
}

}  // namespace trireme::schedule
