#pragma once

#include <cstdint>
#include <span>

namespace trireme::grid {

class Communicator;

/// Pause between two polls of a waiting rank. If each rank has its own core, the rank yields and
/// polls again, so that it sees a message at once. If ranks outnumber cores, polling takes the core
/// from the ranks for whose messages the rank waits: after some polls, the rank sleeps between
/// polls instead.
class Pause {
 public:
  void operator()();

 private:
  int looks_ = 0;
};

/// Whether more than `cores` ranks are in the group of rank `mine`. `groups`: group of each rank.
bool outnumber(std::span<const std::int64_t> groups, std::size_t mine, std::int64_t cores);

/// Determines whether the ranks that are bound to the same cores as this rank outnumber these
/// cores. Every later Pause depends on the result. Collective.
void find_shared_cores(Communicator& world);

}  // namespace trireme::grid
