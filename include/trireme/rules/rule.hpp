#pragma once

#include <trireme/base/types.hpp>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

/// Marks the body of a loop over elements, for hosts and devices. It is always inlined, so that the
/// loop is vectorised.
#if defined(__CUDACC__)
#define TRIREME_BODY __host__ __device__ __forceinline__
#elif defined(__HIPCC__)
#define TRIREME_BODY __host__ __device__ inline __attribute__((always_inline))
#else
#define TRIREME_BODY inline __attribute__((always_inline))
#endif

namespace trireme {

/// Factor of Muon's updates: see rules::Muon.
enum class MuonScale : std::uint8_t { match_adamw, spectral };
EnumWords enum_words(MuonScale);

}  // namespace trireme

/// Update rules. A rule is a struct in a file of its own (adamw.hpp is an example), with a line in
/// table.hpp and a value in kinds.hpp. Its members say which state it has, and a list of passes
/// says what a step does. Steps, memory, messages, checkpoints and benchmarks follow from them.
namespace trireme::rules {

/// Numbers of [optimizer] that rules read.
struct Settings {
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  double momentum = 0;
  bool nesterov = false;
  double trust_coefficient = 0;
  std::int64_t newton_schulz_steps = 5;
  MuonScale muon_scale = MuonScale::match_adamw;
  double muon_rate_factor = 1;
  double decay_exponent = 0;    ///< Adafactor: see rules::Adafactor
  double update_threshold = 0;  ///< Adafactor
  double minimum_scale = 0;     ///< Adafactor
  bool operator==(const Settings&) const = default;
};

/// Numbers of a step that the functions of a rule read.
struct Step {
  double learning_rate = 0;
  double update = 1;             ///< number u of the update
  double clip = 1;               ///< factor of the gradient
  double first_correction = 1;   ///< 1 − beta1^u
  double second_correction = 1;  ///< 1 − beta2^u
  double factor = 1;             ///< of the array: see Norms and WholeMatrices
  bool decays = true;            ///< whether weight decay applies to the array
};

/// The arrays that a rule updates as matrices, apart from the other arrays: none, the weights of
/// products in the layers (architecture::is_hidden_matrix), or all matrices.
enum class Matrices : std::uint8_t { none, hidden, all };

/// Whether a rule updates an array as matrices. `array`: the least value that includes the array,
/// or `none` if it has no matrices.
inline constexpr bool as_matrices(Matrices rule, Matrices array) {
  return array != Matrices::none && rule >= array;
}

/// The arrays to which a state array or a pass belongs.
enum class Arrays : std::uint8_t { all, matrices, others };

/// Shape of a state array: of the weights, or one number for each row or each column of the
/// weights' matrices (architecture::MatrixAxes).
enum class Shape : std::uint8_t { weights, rows, columns };

/// A state array. For weight w, checkpoints store it as "optimizer.<name>.w".
struct StateArray {
  std::string_view name;
  Arrays of = Arrays::all;
  Shape shape = Shape::weights;
  bool operator==(const StateArray&) const = default;
};

/// Kinds of passes; the classes below describe them.
enum class PassKind : std::uint8_t { elements, norms, whole_matrices, means, factored };

/// A pass of a step, described for any rule.
struct Pass {
  PassKind kind = PassKind::elements;
  int number = 0;          ///< position in the rule's list
  const char* label = "";  ///< of the launch: "kernels/<rule>_<what it does>"
  Arrays of = Arrays::all;
  int states = 0;  ///< number of state arrays that a function of elements changes: the first ones
  int norms = 0;   ///< number of norms of each array
};

/// Calls F<Real>(settings, step)(target, input, states...) for each element. If F::of_gradient, the
/// target is the gradient and the input the weight; otherwise the target is the weight and the
/// input the gradient. F::states is the number of state arrays. If F has a function
/// applies(settings), the pass is part of a step only if it returns true.
template <template <class> class F, Arrays arrays = Arrays::all>
struct Elements {
  template <class Real>
  using Function = F<Real>;
  static Pass described() {
    return {PassKind::elements, 0, F<double>::label, arrays, F<double>::states};
  }
  static bool applies(const Settings& settings) {
    if constexpr (requires { F<double>::applies(settings); })
      return F<double>::applies(settings);
    else
      return true;
  }
};

/// Norms of a whole array.
struct ArrayNorms {
  double weight = 0;
  double other = 0;     ///< of the gradient before clipping, or if there are two norms, of what is
                        ///< in the gradient's place
  double elements = 0;  ///< number of elements
};

/// Finds the factor R::factor(settings, step, norms) of each array. R::norms: 1, the weights' norm,
/// beside the gradient's norm, which every step has; or 2, also the norm of what is in the
/// gradient's place.
template <class R>
struct Norms {
  using Ratio = R;
  static Pass described() { return {PassKind::norms, 0, R::label, Arrays::all, 0, R::norms}; }
  static bool applies(const Settings&) { return true; }
};

/// Replaces the gradient of each matrix by an orthogonalised matrix (optim::Muon). The factor of an
/// array is Rule::factor().
struct WholeMatrices {
  static Pass described() { return {PassKind::whole_matrices, 0, "", Arrays::matrices}; }
  static bool applies(const Settings&) { return true; }
};

/// Moves the state of rows and columns towards the means of the squares of the clipped gradients,
/// by the share M::share(settings, step).
template <class M>
struct Means {
  using Moving = M;
  static Pass described() { return {PassKind::means, 0, M::label, Arrays::matrices}; }
  static bool applies(const Settings&) { return true; }
};

/// Calls F<Real>(settings, step)(gradient, row, column) for each element of the matrices. `row` is
/// the row's state divided by the mean of its matrix, which is at least F::least(settings), and
/// `column` the column's state.
template <template <class> class F>
struct Factored {
  template <class Real>
  using Function = F<Real>;
  static Pass described() { return {PassKind::factored, 0, F<double>::label, Arrays::matrices}; }
  static bool applies(const Settings&) { return true; }
};

/// Defaults of a rule's members.
struct Rule {
  static constexpr Matrices matrices = Matrices::none;
  static constexpr double default_momentum = 0.9;
  static constexpr bool has_nesterov = false;  ///< whether the rule has Nesterov momentum
  static constexpr bool nesterov_by_default = false;
  /// Why all replicas must have whole arrays, or "": the end of a sentence about the rule.
  static constexpr std::string_view needs_whole_replicas = "";
  /// Factor of the updates of a matrix with `rows` outputs and `columns` inputs.
  static double factor(const Settings&, double /*rows*/, double /*columns*/) { return 1; }
};

}  // namespace trireme::rules
