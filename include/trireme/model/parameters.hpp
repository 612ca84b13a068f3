#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/buckets.hpp>
#include <trireme/architecture/placement.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace trireme::model {

/// Type traits, selected once in train/. Compute: type of weights and activations. Gradient: type
/// of the gradients of weights. Master: type of the weights that the optimizer updates. If Master
/// differs from Compute, the weights are rounded copies of master weights (Micikevicius et al.
/// 2018, arXiv 1710.03740, section 3.1).
struct Fp32 {
  using Compute = float;
  using Gradient = float;
  using Master = float;
};
struct Fp64 {
  using Compute = double;
  using Gradient = double;
  using Master = double;
};

struct MixedBf16 {
  using Compute = Bf16;
  using Gradient = float;
  using Master = float;
};
struct MixedFp16 {
  using Compute = Fp16;
  using Gradient = float;
  using Master = float;
};

/// Division of a rank's arrays among the replicas of the model ([parallel] shard).
struct Replicas {
  architecture::Division division;
  int rank = 0;
  int size = 1;
  std::int64_t bucket_bytes = 0;
  bool cuts_tokens = false;  ///< sequence parallelism
};

/// The parameter registry of a rank: every array that the rank holds, with the rank's slice of the
/// weight and of the gradient. All weights are in one arena and all gradients in another arena, at
/// equal offsets unless replicas divide the arrays.
template <class P>
class Parameters {
 public:
  using Compute = typename P::Compute;
  using Gradient = typename P::Gradient;

  struct Entry {
    const architecture::ArraySpec* spec;
    architecture::RankArray local;
    std::int64_t offset;  ///< Placement::offset, in elements
    NamedTensor<Compute> weight;
    NamedTensor<Gradient> gradient;

    /// Number of the array in the global registry, which selects its random stream.
    std::uint32_t number() const { return static_cast<std::uint32_t>(local.number); }
  };

  /// `architecture` must outlive this object. Without `gradients`, for evaluation, gradient views
  /// are empty.
  Parameters(const architecture::Architecture& architecture, const architecture::Shard& shard,
             bool gradients, const Replicas& replicas = {});

  /// Sets the initial values of all arrays. In every layout, element i of a random array is the
  /// same function of the seed, the number of the array, and i.
  void initialise(const Exec& exec, std::uint64_t seed);
  /// Sets the initial values of one array.
  void initialise(const Exec& exec, const Entry& entry, std::uint64_t seed) const;
  /// Sets an array of magnitudes (DoRA) to the norms of the rows of its weight matrix. If this rank
  /// has whole rows of the matrix, they must be set before. Otherwise `read` is called for one
  /// block of whole rows after the other, and must fill the block. Waits for the kernels.
  void set_row_norms(const Exec& exec, const Entry& magnitudes,
                     const std::function<void(const NamedTensor<Compute>&)>& read) const;
  /// Calls `set` for every array to fill its weights. If replicas divide the weights, layers that
  /// share a window are filled one after the other, and the rank keeps its own parts of each layer.
  void set_weights(const Exec& exec, const std::function<void(const Entry&)>& set);

  /// Counter of the changes of the weights, for results that depend only on weights, such as DoRA's
  /// scales. Code that writes weights must call changed().
  std::uint64_t version() const { return version_; }
  void changed() { ++version_; }

  const std::vector<Entry>& entries() const { return entries_; }
  const Entry& entry(const std::string& name) const;
  bool holds(const std::string& name) const { return by_name_.contains(name); }
  const architecture::Shard& shard() const { return shard_; }
  const architecture::Architecture& architecture() const { return architecture_; }

  /// A weight, or its gradient, as a matrix or a vector. A matrix may include the arrays that
  /// follow `name` in the arena (query, then key and value). Frozen arrays have empty gradients.
  View2<Compute> weight(const std::string& name, std::int64_t rows, std::int64_t columns) const;
  View2<Gradient> gradient(const std::string& name, std::int64_t rows, std::int64_t columns) const;
  View1<Compute> weight(const std::string& name, std::int64_t elements) const;
  View1<Gradient> gradient(const std::string& name, std::int64_t elements) const;

  /// The arena of the gradients, and the positions of weights and gradients in their arenas.
  View1<Gradient> all_gradients() const { return all_gradients_; }
  const architecture::Arrangement& weight_places() const { return weight_places_; }
  const architecture::Arrangement& gradient_places() const { return gradient_places_; }
  /// Division of the gradients into buckets for their sums over a data axis of `data_ranks` ranks.
  architecture::BucketCut bucket_cut(std::int64_t bucket_bytes, int data_ranks) const;
  architecture::BucketCut bucket_cut() const;  ///< for the replicas of this registry
  /// Division of all weights, including frozen weights, into buckets, if replicas divide them.
  architecture::BucketCut weight_cut() const;
  const std::vector<architecture::RankArray>& rank_arrays() const { return local_; }
  View1<Compute> all_weights() const { return all_weights_; }
  /// Gradients of a stage's arrays that all tensor ranks hold whole; see replicated_part(). Empty
  /// if there are no such arrays or if replicas divide their gradients.
  View1<Gradient> replicated_gradients(Stage stage, bool partial_gradient) const;
  /// Second gradient of tied embeddings, from the logits, on ranks with both look-up and logits:
  /// [V, D] of this rank's part of the vocabulary. Empty on other ranks.
  View2<Gradient> tied_gradient() const { return tied_gradient_; }

  /// Blocks of frozen arrays that this rank owns, if replicas divide the weights. If several tensor
  /// ranks hold the same block, only one of them returns it.
  std::vector<NamedTensor<Compute>> owned_frozen() const;

  const architecture::Placement& placement() const { return placement_; }
  std::int64_t weight_bytes() const { return weights_.capacity(); }
  std::int64_t gradient_bytes() const { return gradients_.capacity(); }

 private:
  std::int64_t place_of(const architecture::Arrangement& places, std::size_t local) const;
  architecture::BucketCut bucket_cut(std::int64_t bucket_bytes, int data_ranks,
                                     architecture::CutOf of) const;

  std::uint64_t version_ = 1;
  architecture::Shard shard_;
  std::vector<architecture::RankArray> local_;
  architecture::Placement placement_;
  const architecture::Architecture& architecture_;
  Replicas replicas_;
  architecture::Arrangement weight_places_;
  architecture::Arrangement gradient_places_;
  Arena weights_;
  Arena gradients_;
  View1<Compute> all_weights_;
  View1<Gradient> all_gradients_;
  View2<Gradient> tied_gradient_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

}  // namespace trireme::model
