#pragma once

#include <cstdint>
#include <span>

namespace trireme::grid {

class Communicator;

/// Pause between two polls of a waiting rank: yields the core, or, if ranks outnumber cores, sleeps
/// after some polls, so that other ranks can run.
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
