#pragma once

#include <trireme/architecture/buckets.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// Sends new weights to all ranks of the data axis: after the distributed optimizer's step, each
/// has them in its own parts of the buckets. Buckets that begin at or after `elements` of the arena
/// hold only gradients. Collective.
template <class T>
class WeightGather {
 public:
  /// `communicator` must outlive this. weights [elements].
  WeightGather(grid::Communicator& communicator, View1<T> weights,
               std::vector<architecture::Bucket> buckets);

  /// Starts all messages and waits for them.
  void run(const Exec& exec);

 private:
  grid::Communicator& communicator_;
  View1<T> weights_;
  std::vector<architecture::Bucket> buckets_;
  std::vector<std::vector<std::int64_t>> counts_;  ///< per bucket
  std::vector<grid::Request> running_;
};

}  // namespace trireme::optim
