#pragma once

#include <trireme/base/types.hpp>
#include <trireme/checkpoint/shard.hpp>
#include <trireme/tensor/views.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// Interval between checks of a part that is being written.
inline constexpr auto look_again = std::chrono::milliseconds(10);

/// Starts a rank's part of writing a checkpoint: in a new thread if `background`, otherwise in the
/// thread that calls get() or wait() of the future.
std::future<std::string> start_part(bool background, std::function<std::string()> work);

/// Pinned host memory for copies of a rank's slices, aligned for writing without the page cache.
class CopyMemory {
 public:
  explicit CopyMemory(Bytes bytes);

  Bytes bytes() const { return bytes_; }
  std::span<std::byte> content() const;
  /// The slices with addresses in this memory; copies no data. Error if the slices do not fit.
  std::vector<checkpoint::SliceView> place(std::vector<checkpoint::SliceView> slices) const;
  /// Places the slices and copies their data to this memory.
  std::vector<checkpoint::SliceView> copy(const std::vector<checkpoint::SliceView>& slices) const;

 private:
  StagingBuffer memory_;
  Bytes bytes_;
};

/// Size of a CopyMemory for these slices.
Bytes copy_bytes(std::span<const checkpoint::SliceView> slices);

}  // namespace trireme::train
