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

/// Interval at which a part that is being written is checked.
inline constexpr auto look_again = std::chrono::milliseconds(10);

/// Starts a rank's part of writing a checkpoint: in a thread, or deferred until someone waits for
/// it.
std::future<std::string> start_part(bool background, std::function<std::string()> work);

/// Pinned host memory for copies of a rank's slices. Every slice begins at a page, so that writing
/// it can bypass the file cache.
class CopyMemory {
 public:
  explicit CopyMemory(Bytes bytes);

  Bytes bytes() const { return bytes_; }
  std::span<std::byte> content() const;
  /// The slices with data in this memory, one after the other. Error if they do not fit.
  std::vector<checkpoint::SliceView> place(std::vector<checkpoint::SliceView> slices) const;
  /// place(), and copies the slices' data here.
  std::vector<checkpoint::SliceView> copy(const std::vector<checkpoint::SliceView>& slices) const;

 private:
  StagingBuffer memory_;
  Bytes bytes_;
};

/// The size of a CopyMemory for these slices.
Bytes copy_bytes(std::span<const checkpoint::SliceView> slices);

}  // namespace trireme::train
