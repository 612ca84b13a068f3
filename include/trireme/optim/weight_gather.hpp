#pragma once

#include <trireme/architecture/arrangement.hpp>
#include <trireme/optim/gradient_reducer.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::optim {

/// Gathers the weights that other replicas update, bucket by bucket: each replica has the new
/// weights in its own parts of the buckets. Resident arrays are gathered once, after the update,
/// while the next passes begin. Arrays in windows (architecture::Arrangement) are gathered one
/// layer ahead of each use (Rajbhandari et al. 2020, "ZeRO", section 5.3).
template <class T>
class WeightGather {
 public:
  /// `places`: positions of arrays in `memory`. Ignores buckets that begin at `arena_elements` or
  /// later: they hold only gradients. `groups` and `places` must outlive this object.
  WeightGather(const BucketGroups& groups, View1<T> memory, const architecture::Arrangement& places,
               std::int64_t arena_elements, std::vector<architecture::Bucket> buckets);

  /// Waits for outstanding gathers, unless an exception ends the run: other ranks may have exited.
  ~WeightGather();
  WeightGather(const WeightGather&) = delete;
  WeightGather& operator=(const WeightGather&) = delete;

  /// Call after the own parts have changed: waits for outstanding gathers, marks the windows as
  /// outdated, and starts the gathers of resident arrays. Collective.
  void update(const Exec& exec);
  /// Waits for the weights of a block (architecture::block_of), and starts the gather of block
  /// `next` if `next` has another window. Collective if arrays are gathered into windows.
  void before_reads(const Exec& exec, std::int64_t block, std::optional<std::int64_t> next);
  /// Waits for all outstanding gathers.
  void finish();
  /// Waits for outstanding gathers, and marks the windows as outdated.
  void forget_windows();

 private:
  void start(const Exec& exec, std::size_t bucket);
  void wait(std::size_t bucket, const char* what);
  void fetch(const Exec& exec, int unit);
  bool belongs(std::size_t bucket, std::int64_t block) const;

  BucketGroups groups_;
  View1<T> memory_;
  const architecture::Arrangement& places_;
  architecture::WindowTurns turns_;
  std::vector<architecture::Bucket> buckets_;      ///< in the order in which passes use them
  std::vector<std::vector<std::int64_t>> counts_;  ///< counts() of each bucket
  std::vector<int> units_;  ///< unit of each bucket; −1: the bucket's arrays are resident
  std::vector<grid::Request> running_;
};

}  // namespace trireme::optim
