#pragma once

#include <trireme/architecture/extents.hpp>
#include <trireme/rules/rule.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::architecture {

/// Kind of initial values. `row_norms`: norms of the rows of the weights that the magnitudes scale.
enum class Initialisation : std::uint8_t { zeros, ones, normal, uniform, row_norms };

/// Suffixes of the names of adapter arrays: A, B and magnitudes.
inline constexpr std::string_view adapter_a = ".adapter_a";
inline constexpr std::string_view adapter_b = ".adapter_b";
inline constexpr std::string_view adapter_m = ".adapter_m";

/// A dimension of an array that ranks divide among them.
struct ArrayCut {
  std::int8_t dimension = 0;
  Divide divide = Divide::evenly;
  /// For `groups`: number of query heads per index of the dimension. A tensor rank holds the
  /// indices that its query heads use; several ranks may hold the same index.
  std::int16_t group = 1;
};

/// At most two cuts, in place and in few bytes: a model may have a million arrays.
class ArrayCuts {
 public:
  ArrayCuts() = default;
  ArrayCuts(std::initializer_list<ArrayCut> cuts) {
    for (const ArrayCut& cut : cuts) push_back(cut);
  }
  void push_back(const ArrayCut& cut) { list_.at(count_++) = cut; }
  bool empty() const { return count_ == 0; }
  const ArrayCut* begin() const { return list_.data(); }
  const ArrayCut* end() const { return begin() + count_; }
  const ArrayCut& front() const { return *begin(); }
  const ArrayCut& back() const { return *(end() - 1); }

 private:
  std::array<ArrayCut, 2> list_{};
  std::uint8_t count_ = 0;
};

/// One global array of parameters.
struct ArraySpec {
  std::string name;                 ///< "layers.3.attention.query"
  std::vector<std::int64_t> shape;  ///< global, last axis contiguous
  /// Divided dimensions, ascending: at most one that the tensor axis divides, and before it at most
  /// one that only replicas divide. Which part a rank holds, which ranks hold the same part and
  /// which sum its gradient follows from them (shard.hpp).
  ArrayCuts cuts = {};
  Initialisation initialisation = Initialisation::zeros;
  bool decay = false;  ///< whether weight decay applies: only to matrices
  /// The array is stored directly after the previous array, so that one matrix product uses both.
  bool follows_previous = false;
  /// Every tensor rank holds the whole array and computes a partial sum of its gradient.
  bool partial_gradient = false;
  /// Blocks `block`, `block` + n, … of the layers use the array, with n = [model] shared_layers.
  /// Every pipeline rank holds the array; its gradient on a rank covers only the rank's own layers.
  bool shared = false;
  /// An earlier operation defines the array of this name.
  bool tied = false;
  std::int64_t block = 0;         ///< number of its block: see Architecture::blocks
  double standard_deviation = 0;  ///< for `normal`; for `uniform`: bound of the values
  /// The array has no gradient, optimizer state or master weights. In the description of a kind of
  /// layers: frozen in all layers of this kind.
  bool frozen = false;
  bool adapter = false;   ///< whether the array belongs to an adapter
  bool constant = false;  ///< frozen in every training
  /// The gradient is the number of tokens that chose each element's expert. It has no norm, and the
  /// optimizer changes the array by the rule of kernels::balance_update.
  bool counts_tokens = false;
  /// With counts_tokens, the optimizer instead sets the array to the counts, relative to their
  /// mean: kernels::load_update.
  bool is_load = false;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
  }
  /// The cut of the tensor axis; null: every tensor rank holds all.
  const ArrayCut* tensor_cut() const {
    return !cuts.empty() && cuts.back().divide != Divide::replicas ? &cuts.back() : nullptr;
  }
  /// Whether the array has a dimension of a kind.
  bool is_divided(Divide divide) const {
    for (const ArrayCut& cut : cuts)
      if (cut.divide == divide) return true;
    return false;
  }
  /// The vocabulary, which pipeline ranks may share ([parallel] vocabulary).
  bool of_vocabulary() const { return is_divided(Divide::vocabulary); }
  /// The experts, which replicas may divide ([parallel] expert).
  bool of_experts() const { return is_divided(Divide::experts) || is_divided(Divide::replicas); }
};

/// No cut, or a dimension that the tensor ranks divide evenly.
inline ArrayCuts tensor_cuts(int dimension) {
  if (dimension < 0) return {};
  return {{static_cast<std::int8_t>(dimension)}};
}

/// Whether an array consists of matrices that Muon updates: trained weights of products in the
/// layers, except adapters.
inline bool is_hidden_matrix(const ArraySpec& a, std::int64_t layers) {
  return a.decay && !a.adapter && !a.frozen && a.block >= 1 && a.block <= layers;
}

/// The least rules::Matrices that include an array: `hidden` for hidden matrices, `all` for other
/// trained matrices, such as the token table.
inline rules::Matrices matrix_kind(const ArraySpec& a, std::int64_t layers) {
  if (is_hidden_matrix(a, layers)) return rules::Matrices::hidden;
  return a.decay && !a.frozen && a.shape.size() > 1 ? rules::Matrices::all : rules::Matrices::none;
}

/// Default standard deviation of initial weights.
inline constexpr double weight_deviation = 0.02;

/// `divided`: dimension that the tensor ranks divide; −1: none.
inline ArraySpec matrix(std::string name, std::vector<std::int64_t> shape, int divided,
                        double deviation = weight_deviation) {
  ArraySpec spec{std::move(name), std::move(shape), tensor_cuts(divided), Initialisation::normal,
                 true};
  spec.standard_deviation = deviation;
  return spec;
}
/// Spec of a table [V, hidden].
inline ArraySpec table(std::string name, std::int64_t vocabulary, std::int64_t hidden) {
  ArraySpec spec = matrix(std::move(name), {vocabulary, hidden}, 0);
  spec.cuts = {{0, Divide::vocabulary}};
  return spec;
}
inline ArraySpec vector(std::string name, std::vector<std::int64_t> shape, int divided,
                        Initialisation init = Initialisation::zeros) {
  return {std::move(name), std::move(shape), tensor_cuts(divided), init};
}

/// Product of the extents of axes [begin, end).
std::int64_t product(const std::vector<std::int64_t>& extents, std::size_t begin, std::size_t end);

}  // namespace trireme::architecture
