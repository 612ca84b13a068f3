#pragma once

#include <trireme/data/token_file.hpp>

#include <cstdint>
#include <span>

namespace trireme::data {

/// Windows of S + 1 tokens in file order: window i begins at token i S, so that each token but the
/// first is a target once; what is left at the end is dropped. For evaluation. The file must
/// outlive it. Thread-safe.
class Windows {
 public:
  /// UsageError if the file has no window.
  Windows(const TokenFile& file, std::int64_t sequence);

  std::int64_t count() const { return count_; }
  std::int64_t sequence() const { return sequence_; }
  /// inputs[i] and targets[i] are tokens i S … i S + S − 1 and the same one further.  Both [S].
  void read(std::int64_t window, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets) const;
  /// `count` windows from `first` on. Both [count, S].
  void read(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets) const;

 private:
  const TokenFile& file_;
  std::int64_t sequence_;
  std::int64_t count_;
};

/// The endless sequence of training samples: in each epoch every window once, in an order computed
/// from (seed, epoch). A global sample number n means place n mod per_epoch() of epoch n /
/// per_epoch(), whoever asks for it. Thread-safe.
class Samples {
 public:
  Samples(const TokenFile& file, std::int64_t sequence, std::uint64_t seed);

  std::int64_t per_epoch() const { return windows_.count(); }
  std::int64_t sequence() const { return windows_.sequence(); }
  /// The window that is sample `sample`.
  std::int64_t window_of(std::int64_t sample) const;
  /// `count` consecutive samples from `first_sample` on. Both [count, S].
  void read(std::int64_t first_sample, std::int64_t count, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets) const;

 private:
  Windows windows_;
  std::uint64_t seed_;
};

}  // namespace trireme::data
