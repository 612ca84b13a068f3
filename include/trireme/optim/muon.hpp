#pragma once

#include <trireme/architecture/hidden_matrices.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/kernels/handle.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/tensor/arena.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// Factor of a matrix's orthogonalised update.
double muon_factor(MuonScale scale, double rows, double columns);

/// Orthogonalises whole matrices whose elements are distributed over tensor ranks and replicas:
/// each rank receives some of the matrices and sends the results back. Jordan et al. 2024;
/// distributed as in Liu et al. 2025, arXiv 2502.16982, section 2.3, but with the work divided by
/// matrices.
template <class P>
class Muon {
 public:
  using Real = typename P::Master;

  /// `workers`: replicas that share the work. If `placement.whole`, each of them has all sums of
  /// gradients, otherwise only its own parts. `placement` must outlive this object.
  Muon(const architecture::Architecture& architecture, const model::Parameters<P>& parameters,
       grid::Communicator& tensor, grid::Communicator& workers,
       const architecture::StatePlacement& placement);

  /// Replaces the gradients of hidden matrices in the arena `gradients`, of which this rank updates
  /// its own parts, by polynomials whose singular values are near 1: `steps` iterations of X = a X
  /// + b X Xᵀ X + c X Xᵀ X Xᵀ X from X / ‖X‖. Collective.
  void orthogonalise(const kernels::Handle& handle, View1<typename P::Gradient> gradients,
                     std::int64_t steps) const;

  const std::vector<architecture::HiddenMatrix>& matrices() const { return rounds_.matrices(); }
  Bytes bytes() const { return memory_.capacity(); }

 private:
  using Matrix = architecture::HiddenMatrix;
  /// Elements [begin, begin + count) of this rank's part of a matrix that this rank updates, and
  /// the offset of their gradients.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t place = 0;
  };

  std::vector<Range> ranges_of(const Matrix& matrix) const;
  View1<Real> part_of(int tensor_rank) const;
  View2<Real> whole(const View1<Real>& memory, const Matrix& matrix) const;
  void collect_parts(const Exec& exec, View1<typename P::Gradient> gradients, int round,
                     int tensor_rank) const;
  void return_parts(const Exec& exec, View1<typename P::Gradient> gradients, int round,
                    int tensor_rank) const;
  void join(const Exec& exec, int round) const;
  void divide(const Exec& exec, int round, bool in_other) const;
  bool iterate(const kernels::Handle& handle, const Matrix& matrix, std::int64_t steps) const;
  /// A tensor rank's slice of a matrix in memory.
  View2<Real> slice_of(const View1<Real>& memory, const Matrix& matrix, int tensor_rank) const;
  View2<Real> part_matrix(const View1<Real>& part, const Matrix& matrix, int tensor_rank) const;

  const model::Parameters<P>& parameters_;
  grid::Communicator& tensor_;
  grid::Communicator& workers_;
  const architecture::StatePlacement& placement_;
  architecture::MatrixRounds rounds_;
  Arena memory_;
  View1<Real> parts_;   // [tensor · longest part] parts of the round, for each tensor rank
  View1<Real> matrix_;  // [whole] this rank's matrix; parts_ if there is no tensor axis
  View1<Real> other_;   // [whole] gathered parts, or the next iterate
  View1<Real> gram_, polynomial_;  // [side²]
  View1<Real> chunk_;              // [workers · chunk]
  View1<double> squares_, root_;
};

}  // namespace trireme::optim
