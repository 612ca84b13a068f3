#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/architecture/rank_sizes.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

namespace trireme::plan {

/// Dimensions of one rank's part of a micro-batch, and element sizes.
struct TypedSizes : architecture::RankSizes {
  Bytes element = 0;     ///< bytes of a weight or activation
  Bytes accumulate = 0;  ///< bytes of a sum, gradient or master weight
  Bytes moment = 0;      ///< bytes of a number of the optimizer's state

  bool narrow() const { return element < accumulate; }
  /// The sizes of blocks of a stream.
  TypedSizes of(architecture::Stream stream) const {
    return {RankSizes::of(stream), element, accumulate, moment};
  }
  /// Bytes of the model's values besides the rows of the tokens: see architecture::ModelValue.
  Bytes value_bytes() const { return architecture::value_bytes(*this, element, accumulate); }
  /// Bytes of a message with rows of both streams and of modules, and all tables.
  Bytes boundary_bytes(std::int64_t of_tokens, std::int64_t of_source) const {
    return ((1 + modules) * of_tokens * hidden + of_source * source.hidden) * element +
           architecture::table_bytes(*this, element, accumulate);
  }
};

/// Bytes of a number of the optimizer's state that has the shape of the weights.
Bytes moment_bytes(const deck::Config& config);

TypedSizes typed_sizes(const deck::Config& config, const architecture::Shard& shard,
                       const Machine& machine);

}  // namespace trireme::plan
