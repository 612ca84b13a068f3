#pragma once

#include <trireme/architecture/hidden_matrices.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/kernels/handle.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/optim/gradient_reducer.hpp>
#include <trireme/tensor/arena.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// Orthogonalises matrices (Jordan et al. 2024) whose elements are distributed over tensor ranks
/// and replicas: each rank receives some whole matrices, and sends the results back (like Liu et
/// al. 2025, arXiv 2502.16982, section 2.3, but the work is divided by matrices).
template <class P>
class Muon {
 public:
  using Real = typename P::Master;

  /// `replicas`: the ranks that share the work, those of all matrices and those of experts that
  /// replicas divide. If `placement.whole`, each replica has all summed
  /// gradients, otherwise only the summed gradients of its own parts. `placement` and the other
  /// references must outlive this object.
  Muon(const architecture::Architecture& architecture, const model::Parameters<P>& parameters,
       grid::Communicator& tensor, const BucketGroups& replicas,
       const architecture::StatePlacement& placement);

  /// Replaces the gradient G of each hidden matrix by a matrix whose singular values are near 1:
  /// X = G / ‖G‖, then `steps` iterations X = a X + b X Xᵀ X + c X Xᵀ X Xᵀ X. In the arena
  /// `gradients`, only the parts that this rank updates are replaced. Collective.
  void orthogonalise(const kernels::Handle& handle, View1<typename P::Gradient> gradients,
                     std::int64_t steps) const;

  /// Calls use(matrix) for each hidden matrix of this rank.
  template <class Use>
  void visit(const Use& use) const {
    for (const Work& work : work_)
      for (const architecture::HiddenMatrix& matrix : work.rounds.matrices()) use(matrix);
  }
  Bytes bytes() const { return memory_.capacity(); }

 private:
  using Matrix = architecture::HiddenMatrix;
  /// Matrices that the same replicas have, and these replicas.
  struct Work {
    architecture::MatrixRounds rounds;
    grid::Communicator* replicas;
  };
  /// Elements of the tensor rank's part of a matrix that this rank updates.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t place = 0;  ///< offset of the range's gradients in memory
  };

  std::vector<Range> ranges_of(const Matrix& matrix) const;
  /// Parts of these ranges within the elements [first, first + count) of the tensor rank's part;
  /// none if `matrix` is null.
  std::vector<Range> ranges_of(const Matrix* matrix, std::int64_t first, std::int64_t count) const;
  View1<Real> part_of(const Work& work, int tensor_rank) const;
  View2<Real> whole(const View1<Real>& memory, const Matrix& matrix) const;
  void collect_parts(const Exec& exec, const Work& work, View1<typename P::Gradient> gradients,
                     int round, int tensor_rank) const;
  void return_parts(const Exec& exec, const Work& work, View1<typename P::Gradient> gradients,
                    int round, int tensor_rank) const;
  void join(const Exec& exec, const Work& work, int round) const;
  void divide(const Exec& exec, const Work& work, int round, bool in_other) const;
  bool iterate(const kernels::Handle& handle, const Matrix& matrix, std::int64_t steps) const;
  /// The rows or columns of `tensor_rank` in the whole matrix in `memory`.
  View2<Real> slice_of(const View1<Real>& memory, const Matrix& matrix, int tensor_rank) const;
  /// The part of `tensor_rank` as a separate matrix in the memory `part`.
  View2<Real> part_matrix(const View1<Real>& part, const Matrix& matrix, int tensor_rank) const;

  const model::Parameters<P>& parameters_;
  grid::Communicator& tensor_;
  const architecture::StatePlacement& placement_;
  std::vector<Work> work_;  ///< first of the matrices that all replicas have
  Arena memory_;            ///< of the buffers, which `work_` uses in turn
  View1<Real> parts_;   // [tensor · longest part] this rank's parts of all tensor ranks' matrices
  View1<Real> matrix_;  // [whole] this rank's matrix; parts_ if there is one tensor rank
  View1<Real> other_;   // [joined] gathered parts, the next iterate, or another rank's result
  View1<Real> gram_, polynomial_;  // [side²], side: the longest of the matrices' shorter sides
  View1<Real> chunk_;              // [replicas · chunk]
  View1<double> squares_, root_;
};

}  // namespace trireme::optim
