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

/// Type traits, selected once in train/: the type of weights and activations, the type of sums and
/// gradients, and the type that the optimizer updates. If the last differs from the first, weights
/// are rounded master weights (Micikevicius et al. 2018, arXiv 1710.03740, section 3.1).
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

/// Division of a rank's arrays among its replicas ([parallel] shard).
struct Replicas {
  architecture::Division division;
  int rank = 0;
  int size = 1;
  std::int64_t bucket_bytes = 0;
  bool cuts_tokens = false;  ///< sequence parallelism
};

/// The parameter registry of a rank: every array that it holds, with its slice of the weight and of
/// the gradient. All weights are in one arena and all gradients in another, at equal offsets unless
/// replicas divide them.
template <class P>
class Parameters {
 public:
  using Compute = typename P::Compute;
  using Gradient = typename P::Gradient;

  struct Entry {
    const architecture::ArraySpec* spec;
    architecture::LocalArray local;
    std::int64_t offset;  ///< in elements
    NamedTensor<Compute> weight;
    NamedTensor<Gradient> gradient;

    /// Number of the array in the global registry, which selects the random stream of its initial
    /// values.
    std::uint32_t number() const { return static_cast<std::uint32_t>(local.number); }
  };

  /// `architecture` must outlive this object. Without `gradients`, for evaluation, gradient views
  /// are empty.
  Parameters(const architecture::Architecture& architecture, const architecture::Shard& shard,
             bool gradients, const Replicas& replicas = {});

  /// Initial values: element i of array a is element i of the random array (seed, a), in every
  /// layout.
  void initialise(const Exec& exec, std::uint64_t seed);
  /// Initial values of one array.
  void initialise(const Exec& exec, const Entry& entry, std::uint64_t seed) const;
  /// Sets an array of magnitudes to the norms of the rows of its weights, which must be set. If
  /// this rank has only parts of rows, `read` fills whole rows, some at a time. Waits.
  void set_row_norms(const Exec& exec, const Entry& magnitudes,
                     const std::function<void(const NamedTensor<Compute>&)>& read) const;
  /// Calls `set` to fill the weights of every array, and keeps them, or this rank's parts of them:
  /// layers that share a window are filled in sequence.
  void set_weights(const Exec& exec, const std::function<void(const Entry&)>& set);

  /// Number of changes of the weights: results that passes derive from weights alone are recomputed
  /// when it has changed. Code that writes weights must call changed().
  std::uint64_t version() const { return version_; }
  void changed() { ++version_; }

  const std::vector<Entry>& entries() const { return entries_; }
  const Entry& entry(const std::string& name) const;
  bool holds(const std::string& name) const { return by_name_.contains(name); }
  const architecture::Shard& shard() const { return shard_; }
  const architecture::Architecture& architecture() const { return architecture_; }

  /// A weight or its gradient in two dimensions; `rows` · `columns` may include the arrays that
  /// follow (query, then key and value). Frozen arrays have empty gradients.
  View2<Compute> weight(const std::string& name, std::int64_t rows, std::int64_t columns) const;
  View2<Gradient> gradient(const std::string& name, std::int64_t rows, std::int64_t columns) const;
  View1<Compute> weight(const std::string& name, std::int64_t elements) const;
  View1<Gradient> gradient(const std::string& name, std::int64_t elements) const;

  /// The arenas, and the positions of arrays in them.
  View1<Gradient> all_gradients() const { return all_gradients_; }
  const architecture::Arrangement& weight_places() const { return weight_places_; }
  const architecture::Arrangement& gradient_places() const { return gradient_places_; }
  /// Division of the gradients into buckets for their sums over a data axis of `data_ranks` ranks.
  architecture::BucketCut bucket_cut(std::int64_t bucket_bytes, int data_ranks) const;
  architecture::BucketCut bucket_cut() const;  ///< for the replicas of this registry
  /// Division of all weights, including frozen ones, into buckets, if replicas divide them.
  architecture::BucketCut weight_cut() const;
  const std::vector<architecture::LocalArray>& local_arrays() const { return local_; }
  View1<Compute> all_weights() const { return all_weights_; }
  /// Gradients of a stage's arrays that all tensor ranks hold whole: one range of the arena for
  /// arrays with ArraySpec::partial_gradient, and one for other arrays.
  View1<Gradient> replicated_gradients(Stage stage, bool partial_gradient) const;
  /// Second gradient of tied embeddings (the logits') on ranks with both look-up and logits: [V, D]
  /// of this rank's part of the vocabulary; empty on other ranks.
  View2<Gradient> tied_gradient() const { return tied_gradient_; }

  /// Blocks of frozen arrays that only this rank counts, if weights are divided.
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
  std::vector<architecture::LocalArray> local_;
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
