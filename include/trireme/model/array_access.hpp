#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <optional>

namespace trireme::model {

/// Called before passes use the arrays of a part of the model, which replicas may divide: its
/// weights may have to be gathered, and its gradients may take the memory of another layer's.
/// `layer` as of architecture::layer_of(). Asynchronous on exec.
class ArrayAccess {
 public:
  virtual ~ArrayAccess() = default;

  /// Kernels launched afterwards may read the weights. `next`: the part that the pass reads next.
  virtual void before_reads(const Exec& exec, std::int64_t layer,
                            std::optional<std::int64_t> next) = 0;
  /// Kernels launched afterwards may add to the gradients.
  virtual void before_sums(const Exec& exec, std::int64_t layer) = 0;
};

}  // namespace trireme::model
