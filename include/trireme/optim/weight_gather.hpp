#pragma once

#include <trireme/architecture/buckets.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// After the distributed optimizer's step, every rank of the data axis has new weights in its own
/// parts of the buckets: brings them to all. Buckets at or behind `elements` of the arena hold
/// gradients only. Collective.
template <class T>
class WeightGather {
 public:
  /// `communicator` must outlive this. weights [elements].
  WeightGather(grid::Communicator& communicator, View1<T> weights,
               std::vector<architecture::Bucket> buckets);

  /// Starts all messages, and waits for them.
  void run(const Exec& exec);

 private:
  grid::Communicator& communicator_;
  View1<T> weights_;
  std::vector<architecture::Bucket> buckets_;
  std::vector<std::vector<std::int64_t>> counts_;  ///< per bucket
  std::vector<grid::Request> running_;
};

}  // namespace trireme::optim
