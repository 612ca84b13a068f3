#pragma once

#include <cstdint>
#include <span>

namespace trireme::grid {

class Communicator;

/// Between two looks of a rank that waits. Where each rank has a core of its own, it yields and
/// looks again, so that it sees a message at once. Where ranks outnumber cores, ranks that look all
/// the time take the core from those that they wait for: after some looks, it sleeps instead.
class Pause {
 public:
  void operator()();

 private:
  int looks_ = 0;
};

/// Whether the ranks of `groups` that equal `groups[mine]` outnumber `cores`.
bool outnumber(std::span<const std::int64_t> groups, std::size_t mine, std::int64_t cores);

/// Finds out whether the ranks that share this rank's cores outnumber them, for every Pause from
/// then on. Collective.
void find_shared_cores(Communicator& world);

}  // namespace trireme::grid
