#pragma once

#include <trireme/architecture/hidden_matrices.hpp>
#include <trireme/base/types.hpp>

#include <cstdint>
#include <vector>

/// Memory and messages of a rank for the updates of Muon (optim/muon.hpp).
namespace trireme::plan {

/// Bytes of the buffers for orthogonalising matrices, which all lists of rounds use in turn.
/// `element`: bytes of an element of the update.
Bytes muon_bytes(const std::vector<architecture::MatrixRounds>& rounds, Bytes element);

struct MessageSum {
  std::int64_t number = 0;
  std::int64_t elements = 0;
  void add(std::int64_t times, std::int64_t each) {
    number += times;
    elements += times * each;
  }
};

/// Messages of a rank's updates in a step.
struct MuonTraffic {
  MessageSum collected, returned;  ///< reduce-scatter and all-gather among replicas
  MessageSum gathered, broadcast;  ///< gather and broadcast over the tensor axis
};
/// Messages of tensor rank `tensor_rank` of replica `replica`. `divided`: whether a replica has
/// only its own parts of the gradient sums.
MuonTraffic muon_traffic(const architecture::MatrixRounds& rounds, int tensor_rank, int replica,
                         bool divided);

}  // namespace trireme::plan
