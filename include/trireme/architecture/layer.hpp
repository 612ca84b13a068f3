#pragma once

#include <trireme/architecture/operation.hpp>

#include <vector>

namespace trireme::architecture {

/// A transformer layer as a list of operations on named tensors. This is the only description of a
/// layer: its parameters, activations, recomputation, messages, FLOPs and benchmarks follow from
/// the list. Embedding and head are such lists too (ends.hpp). Tensor 0 is a layer's input;
/// `output` is the last operation's output.
struct LayerDescription {
  std::vector<Tensor> tensors;
  std::vector<Operation> operations;
  int output = -1;
};

/// The layer of a model with these properties.
LayerDescription describe_layer(const deck::ModelConfig& model);

}  // namespace trireme::architecture
