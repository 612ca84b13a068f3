#pragma once

#include <cstdint>
#include <span>

namespace trireme::grid {

class Communicator;

/// Pause between two polls of a waiting rank. If each rank has its own core, the rank yields and
/// polls again, so that it sees a message at once. If ranks outnumber cores, polling takes the core
/// from the ranks that it waits for: after some polls, the rank sleeps instead.
class Pause {
 public:
  void operator()();

 private:
  int looks_ = 0;
};

/// Whether the ranks whose group is `groups[mine]` outnumber `cores`.
bool outnumber(std::span<const std::int64_t> groups, std::size_t mine, std::int64_t cores);

/// Determines whether the ranks that share this rank's cores outnumber them, for every later Pause.
/// Collective.
void find_shared_cores(Communicator& world);

}  // namespace trireme::grid
