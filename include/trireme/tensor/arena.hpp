#pragma once

#include <trireme/base/alignment.hpp>
#include <trireme/base/check.hpp>
#include <trireme/tensor/views.hpp>

#include <cstddef>
#include <string>

namespace trireme {

/// Memory of an arena: device memory, or host memory that kernels of a device can access.
enum class ArenaMemory : std::uint8_t { device, host };

/// One allocation, from which views are cut in order. An arena without memory only counts bytes, so
/// that one function both sizes and places the views: `Arena plan; layout(plan); Arena
/// real("saved", plan.used()); layout(real);`
class Arena {
 public:
  /// Counts only: views that are cut from this arena have the right shapes and a null pointer.
  Arena() = default;
  /// Allocates `bytes` bytes of zeroed memory; `label` names the arena in memory tables and Kokkos
  /// Tools.
  Arena(const std::string& label, std::int64_t bytes, ArenaMemory where = ArenaMemory::device);

  template <class T>
  View1<T> take(std::int64_t n0) {
    return View1<T>(cut<T>(n0), size(n0));
  }
  template <class T>
  View2<T> take(std::int64_t n0, std::int64_t n1) {
    return View2<T>(cut<T>(n0 * n1), size(n0), size(n1));
  }
  template <class T>
  View3<T> take(std::int64_t n0, std::int64_t n1, std::int64_t n2) {
    return View3<T>(cut<T>(n0 * n1 * n2), size(n0), size(n1), size(n2));
  }
  template <class T>
  View4<T> take(std::int64_t n0, std::int64_t n1, std::int64_t n2, std::int64_t n3) {
    return View4<T>(cut<T>(n0 * n1 * n2 * n3), size(n0), size(n1), size(n2), size(n3));
  }

  std::int64_t used() const { return used_; }          ///< Bytes cut so far, alignment included.
  std::int64_t capacity() const { return capacity_; }  ///< Size in bytes; 0 without memory.
  const std::string& label() const { return label_; }
  std::byte* data() const { return data_; }

  /// Releases the views cut after `mark` (an earlier used()), for scratch memory within one call.
  void release_to(std::int64_t mark);

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

  template <class T>
  T* cut(std::int64_t elements) {
    return reinterpret_cast<T*>(cut_bytes(elements * static_cast<std::int64_t>(sizeof(T))));
  }
  std::byte* cut_bytes(std::int64_t bytes);

  std::string label_;
  Kokkos::View<std::byte*, Memory> memory_;  // only memory_ or host_memory_ is allocated
  StagingBuffer host_memory_;
  std::byte* data_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t used_ = 0;
};

/// Number of arenas allocated so far in this process.
std::int64_t arena_allocation_count();

}  // namespace trireme
