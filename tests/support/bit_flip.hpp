#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace trireme::testing {

/// Flips one bit of an arena when the n-th launch of a kernel begins, like a fault of memory or
/// processor. It observes arenas and launches as a tool of Kokkos. Only one may exist at a time,
/// created before the arenas.
class BitFlip {
 public:
  explicit BitFlip(std::string kernel) : kernel_(std::move(kernel)) {
    namespace Tools = Kokkos::Tools::Experimental;
    current_ = this;
    Tools::set_allocate_data_callback(on_allocation);
    Tools::set_begin_parallel_for_callback(on_launch);
  }
  ~BitFlip() {
    namespace Tools = Kokkos::Tools::Experimental;
    Tools::set_allocate_data_callback(nullptr);
    Tools::set_begin_parallel_for_callback(nullptr);
    current_ = nullptr;
  }
  BitFlip(const BitFlip&) = delete;
  BitFlip& operator=(const BitFlip&) = delete;

  /// Launches of the kernel since the last call.
  std::int64_t launches() { return std::exchange(launches_, 0); }
  /// Counts launches from now on and flips the byte at fraction `share` of the arena.
  void arm(const std::string& arena, double share, std::int64_t launch) {
    arena_ = arena;
    share_ = share;
    launches_ = 0;
    at_ = launch;
  }
  bool has_happened() const { return at_ < 0; }

 private:
  struct Memory {
    std::byte* data;
    std::uint64_t bytes;
  };

  static void on_allocation(Kokkos::Profiling::SpaceHandle, const char* label, const void* data,
                            std::uint64_t bytes) {
    current_->arenas_[label] = {static_cast<std::byte*>(const_cast<void*>(data)), bytes};
  }
  static void on_launch(const char* name, std::uint32_t, std::uint64_t*) {
    BitFlip& flip = *current_;
    if (name != flip.kernel_ || flip.launches_++ != flip.at_) return;
    const Memory& memory = flip.arenas_.at(flip.arena_);
    const auto at =
        static_cast<std::uint64_t>(flip.share_ * static_cast<double>(memory.bytes)) / 8 * 8 + 6;
    memory.data[at] ^= std::byte{0x04};  // in a double: a high bit of the mantissa
    flip.at_ = -1;
  }

  inline static BitFlip* current_ = nullptr;
  const std::string kernel_;
  std::map<std::string, Memory> arenas_;  ///< the latest one of each name
  std::string arena_;
  double share_ = 0;
  std::int64_t launches_ = 0;
  std::int64_t at_ = -1;
};

}  // namespace trireme::testing
