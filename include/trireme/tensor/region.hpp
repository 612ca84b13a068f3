#pragma once

namespace trireme {

/// A named region of a run for Kokkos Tools, from construction to destruction; regions nest. On
/// devices, a region contains the work that is queued in it, whenever this work runs.
class Region {
 public:
  explicit Region(const char* name);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  bool open_;  ///< whether a tool was loaded at construction
};

}  // namespace trireme
