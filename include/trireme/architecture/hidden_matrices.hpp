#pragma once

#include <trireme/architecture/shard.hpp>

#include <cstdint>
#include <vector>

/// The matrices of the layers, which Muon updates as whole matrices (Jordan et al. 2024), and their
/// distribution among ranks.
namespace trireme::architecture {

/// A matrix in a rank's local array. Each tensor rank holds some of its rows or some of its
/// columns, or all or none of them. Queries, keys, values, gate and up are separate matrices, and
/// so are those of each expert.
struct HiddenMatrix {
  std::size_t local = 0;   ///< index in the list of local arrays
  std::int64_t first = 0;  ///< element of the local array's memory at which this rank's part begins
  std::int64_t rows = 0;   ///< outputs of the whole matrix
  std::int64_t columns = 0;          ///< inputs of the whole matrix
  bool split_rows = true;            ///< false: columns are split
  std::vector<layout::Slice> parts;  ///< rows or columns on each tensor rank; may overlap

  std::int64_t elements() const { return rows * columns; }
  std::int64_t elements_on(int tensor_rank) const {
    return parts[static_cast<std::size_t>(tensor_rank)].extent * (split_rows ? columns : rows);
  }
  /// Length of the shorter side.
  std::int64_t side() const { return rows < columns ? rows : columns; }
};

/// Hidden matrices of a rank, largest first, and their assignment: in each round, each of tensor ·
/// replicas ranks has at most one matrix.
class MatrixRounds {
 public:
  /// `replicas`: number of replicas that share the work. `of_experts`: the matrices of experts that
  /// replicas divide (RankArray::of_experts); otherwise all others.
  MatrixRounds(const Architecture& architecture, const Shard& shard,
               const std::vector<RankArray>& arrays, int replicas, bool of_experts = false);

  const std::vector<HiddenMatrix>& matrices() const { return matrices_; }
  int tensor() const { return tensor_; }
  int replicas() const { return replicas_; }
  int rounds() const;
  /// The matrix that a tensor rank of a replica updates in a round; null if there is none.
  const HiddenMatrix* matrix(int round, int replica, int tensor_rank) const;
  /// Largest number of elements, over all replicas, of tensor rank `part`'s part of the matrix that
  /// tensor rank `tensor_rank` updates in a round.
  std::int64_t most_elements(int round, int tensor_rank, int part) const;
  /// Largest number of elements of each replica's part in one message.
  std::int64_t chunk() const { return chunk_; }

  /// Elements of a rank's buffers: the parts of a round's matrices, a whole matrix, the joined
  /// parts of a matrix, a Gram matrix, and a chunk for each replica.
  std::int64_t part_elements() const { return part_elements_; }
  std::int64_t whole_elements() const { return whole_elements_; }
  /// Sum of the parts of all tensor ranks, which may overlap; at least one whole matrix.
  std::int64_t joined_elements() const { return joined_elements_; }
  std::int64_t gram_elements() const { return gram_elements_; }
  std::int64_t chunk_elements() const { return replicas_ > 1 ? replicas_ * chunk_ : 0; }

 private:
  std::vector<HiddenMatrix> matrices_;
  int tensor_;
  int replicas_;
  std::int64_t chunk_ = 0;
  std::int64_t part_elements_ = 0;
  std::int64_t whole_elements_ = 0;
  std::int64_t joined_elements_ = 0;
  std::int64_t gram_elements_ = 0;
};

/// The rounds of all hidden matrices of a rank, whose state `replicas` replicas divide: first of
/// those that all replicas have, then of experts that replicas divide, if they do.
std::vector<MatrixRounds> matrix_rounds(const Architecture& architecture, const Shard& shard,
                                        const std::vector<RankArray>& arrays, int replicas);

}  // namespace trireme::architecture
