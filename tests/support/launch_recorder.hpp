#pragma once

#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/fence.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::testing {

/// Records, during its lifetime, events of Kokkos Tools callbacks and Trireme's own counters:
/// labels of launches, regions, fences and allocations. Only one may exist at a time.
class LaunchRecorder {
 public:
  LaunchRecorder() : fences_before_(fence_count()), arenas_before_(arena_allocation_count()) {
    namespace Tools = Kokkos::Tools::Experimental;
    current_ = this;
    Tools::set_begin_parallel_for_callback(on_launch);
    Tools::set_begin_parallel_reduce_callback(on_launch);
    Tools::set_begin_parallel_scan_callback(on_launch);
    Tools::set_begin_fence_callback(on_fence);
    Tools::set_allocate_data_callback(on_allocation);
    Tools::set_begin_deep_copy_callback(on_deep_copy);
    Tools::set_push_region_callback(on_region);
  }
  ~LaunchRecorder() {
    namespace Tools = Kokkos::Tools::Experimental;
    Tools::set_begin_parallel_for_callback(nullptr);
    Tools::set_begin_parallel_reduce_callback(nullptr);
    Tools::set_begin_parallel_scan_callback(nullptr);
    Tools::set_begin_fence_callback(nullptr);
    Tools::set_allocate_data_callback(nullptr);
    Tools::set_begin_deep_copy_callback(nullptr);
    Tools::set_push_region_callback(nullptr);
    current_ = nullptr;
  }
  LaunchRecorder(const LaunchRecorder&) = delete;
  LaunchRecorder& operator=(const LaunchRecorder&) = delete;

  const std::vector<std::string>& labels() const { return labels_; }
  const std::vector<std::string>& regions() const { return regions_; }
  std::int64_t fences() const { return fences_ + fence_count() - fences_before_; }
  std::int64_t allocations() const {
    return allocations_ + arena_allocation_count() - arenas_before_;
  }
  std::int64_t deep_copies() const { return deep_copies_; }

 private:
  static void on_launch(const char* name, std::uint32_t, std::uint64_t*) {
    current_->labels_.emplace_back(name);
  }
  static void on_region(const char* name) { current_->regions_.emplace_back(name); }
  static void on_fence(const char* name, std::uint32_t, std::uint64_t*) {
    // Newer Kokkos versions wait before calling a tool; without a tool they do not.
    if (std::string_view(name).find("Profile Tool Fence") == std::string_view::npos)
      ++current_->fences_;
  }
  static void on_allocation(Kokkos::Profiling::SpaceHandle, const char*, const void*,
                            std::uint64_t) {
    ++current_->allocations_;
  }
  static void on_deep_copy(Kokkos::Profiling::SpaceHandle, const char*, const void*,
                           Kokkos::Profiling::SpaceHandle, const char*, const void*,
                           std::uint64_t) {
    ++current_->deep_copies_;
  }

  inline static LaunchRecorder* current_ = nullptr;
  std::vector<std::string> labels_;
  std::vector<std::string> regions_;
  std::int64_t fences_ = 0;
  std::int64_t allocations_ = 0;
  std::int64_t deep_copies_ = 0;
  std::int64_t fences_before_;
  std::int64_t arenas_before_;
};

}  // namespace trireme::testing
