#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/base/text.hpp>

#include <array>
#include <utility>

namespace trireme::architecture {

/// Initial value of gains: the factor of a norm is then 1.
inline Initialisation gain_initialisation(const deck::ModelConfig& m) {
  return m.zero_centered_gains ? Initialisation::zeros : Initialisation::ones;
}

/// Appends operations and their output tensors to a description.
class Builder {
 public:
  explicit Builder(const deck::ModelConfig& model) : m_(model) {}

  /// D, the width of the residual stream.
  Columns hidden() const { return fixed_columns("D", m_.hidden); }

  int tensor(std::string name, Rows rows, Columns columns, Numbers numbers = Numbers::compute,
             Home home = Home::layer, int stored_in = -1) {
    built_.tensors.push_back({std::move(name), rows, columns, numbers, home, stored_in});
    return static_cast<int>(built_.tensors.size()) - 1;
  }
  int value(ModelValue value, Rows rows, Columns columns) {
    constexpr std::array names{"memory", "encoder_bias", "decoder_bias", "of_module"};
    const int added = tensor(names[at(value)], rows, columns, Numbers::compute, Home::value);
    built_.tensors.back().value = value;
    return added;
  }
  /// The value [R, D] of a module that predicts a further token.
  int value_of_module(std::int64_t module) {
    const int added = value(ModelValue::of_module, Rows::own, hidden());
    built_.tensors.back().name = text("of_module_", module + 2);
    built_.tensors.back().module = module;
    return added;
  }
  /// The biases [buckets, H] of relative positions in the encoder or in the decoder, whose gradient
  /// has the type of sums.
  int relative_bias(bool encoder) {
    return value(encoder ? ModelValue::encoder_bias : ModelValue::decoder_bias, Rows::buckets,
                 {"H", {Columns::Part{{m_.heads, Divide::evenly}}}});
  }
  /// Adds an operation. Returns the index of its output tensor.
  int add(Operation op) {
    built_.operations.push_back(std::move(op));
    return built_.operations.back().output;
  }
  /// y = norm(x). The norm's statistics have the rows and the home of y.
  int norm(const char* name, int x, int y, NormKind kind) {
    Operation op{OperationKind::norm, name, {x}, y};
    op.arrays = {vector(op.name + ".gain", {m_.hidden}, -1, gain_initialisation(m_))};
    if (kind == NormKind::layer) {
      op.arrays.push_back(vector(op.name + ".bias", {m_.hidden}, -1));
      op.saved = {statistic(op, "mean")};
    }
    op.saved.push_back(statistic(op, "inverse"));
    return add(std::move(op));
  }

  BlockDescription take() {
    built_.output = built_.operations.back().output;
    return std::move(built_);
  }

 protected:
  const deck::ModelConfig& m_;
  BlockDescription built_;

 private:
  int statistic(const Operation& op, const char* what) {
    const Tensor& y = built_.tensors[static_cast<std::size_t>(op.output)];
    return tensor(op.name + "." + what, y.rows, Columns(), Numbers::accumulate, y.home);
  }
};

}  // namespace trireme::architecture
