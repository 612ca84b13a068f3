#pragma once

namespace trireme {

/// A named part of a run as Kokkos Tools see it, from construction to destruction; regions nest.
/// Tests one flag where no tool is loaded. On devices a region holds what was queued in it,
/// whenever that runs.
class Region {
 public:
  explicit Region(const char* name);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  bool open_;  ///< a tool may come or go in between
};

}  // namespace trireme
