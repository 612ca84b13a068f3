#pragma once

#include <trireme/architecture/arrangement.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::optim {

/// Brings the weights that other replicas update to this rank, bucket by bucket: each replica has
/// the new weights in its own parts of the buckets. Resident arrays are gathered once, after the
/// update, while the next passes begin. Arrays that take turns in windows are gathered one layer
/// ahead of each use (Rajbhandari et al. 2020, "ZeRO", section 5.3). Buckets that begin after the
/// arena of the weights hold only gradients.
template <class T>
class WeightGather {
 public:
  /// `communicator` and `places`, where the arrays are in `memory`, must outlive this.
  WeightGather(grid::Communicator& communicator, View1<T> memory,
               const architecture::Arrangement& places, std::int64_t arena_elements,
               std::vector<architecture::Bucket> buckets);

  /// Waits for what is in flight, unless an error ends the run: other ranks may be gone.
  ~WeightGather();
  WeightGather(const WeightGather&) = delete;
  WeightGather& operator=(const WeightGather&) = delete;

  /// The own parts are new: starts the gathers of resident arrays, in the order in which passes
  /// use them. Collective.
  void update(const Exec& exec);
  /// Waits for the weights of a layer (architecture::layer_of), and starts the gather of `next`.
  /// Collective if arrays take turns.
  void before_reads(const Exec& exec, std::int64_t layer, std::optional<std::int64_t> next);
  /// Waits for all that is in flight.
  void finish();
  /// The own parts are new, and resident arrays are whole.
  void forget_windows();

 private:
  void start(const Exec& exec, std::size_t bucket);
  void fetch(const Exec& exec, int unit);
  bool belongs(std::size_t bucket, std::int64_t layer) const;

  grid::Communicator& communicator_;
  View1<T> memory_;
  const architecture::Arrangement& places_;
  architecture::WindowTurns turns_;
  std::vector<architecture::Bucket> buckets_;      ///< in the order in which passes use them
  std::vector<std::vector<std::int64_t>> counts_;  ///< per bucket
  std::vector<int> units_;                         ///< that take turns, per bucket; −1: resident
  std::vector<grid::Request> running_;
};

}  // namespace trireme::optim
