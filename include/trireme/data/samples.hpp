#pragma once

#include <trireme/data/blend.hpp>
#include <trireme/data/token_source.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

/// Windows of S + 1 tokens in file order: window i begins at token i S, so that each token but the
/// first is a target once; what is left at the end is dropped. For evaluation. The file must
/// outlive it. Thread-safe.
class Windows {
 public:
  /// UsageError if the file has no window.
  Windows(const TokenSource& file, std::int64_t sequence);

  const std::string& path() const { return file_.path(); }
  std::int64_t count() const { return count_; }
  std::int64_t sequence() const { return sequence_; }
  /// inputs[i] and targets[i] are tokens i S … i S + S − 1 and the same one further.  Both [S].
  void read(std::int64_t window, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets) const;
  /// `count` windows from `first` on. Both [count, S].
  void read(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets) const;

 private:
  const TokenSource& file_;
  std::int64_t sequence_;
  std::int64_t count_;
};

/// A file to learn from, and its share of the samples in any unit.
struct WeightedSource {
  const TokenSource* file = nullptr;
  double weight = 1;
};

/// The endless sequence of training samples, computed from their global numbers, whoever asks. A
/// blend says which file sample n is from, and the how many-th of that file it is; sample k of a
/// file is place k mod W of its epoch k / W, W being its windows, each of which an epoch has once,
/// in an order computed from (seed, file, epoch). The files must outlive it. Thread-safe.
class Samples {
 public:
  Samples(const TokenSource& file, std::int64_t sequence, std::uint64_t seed);
  Samples(std::span<const WeightedSource> files, std::int64_t sequence, std::uint64_t seed);

  std::size_t files() const { return windows_.size(); }
  /// Windows of one of the files.
  std::int64_t per_epoch(std::size_t file = 0) const { return windows_[file].count(); }
  std::int64_t sequence() const { return windows_.front().sequence(); }
  const Windows& windows(std::size_t file) const { return windows_[file]; }
  struct Place {
    std::size_t file = 0;
    std::int64_t window = 0;
  };
  /// The window that is sample `sample`.
  Place place(std::int64_t sample) const;
  /// `count` consecutive samples from `first_sample` on. Both [count, S].
  void read(std::int64_t first_sample, std::int64_t count, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets) const;

 private:
  std::vector<Windows> windows_;  // of each file
  Blend blend_;
  std::uint64_t seed_;
};

}  // namespace trireme::data
