#pragma once

#include <trireme/architecture/layer.hpp>
#include <trireme/architecture/local_sizes.hpp>

namespace trireme::architecture {

/// What comes before and after the layers, as lists of operations: their arrays, memory, messages,
/// FLOPs and the fields of a batch follow from them. No step of theirs is computed again, and a
/// gradient takes the place of its tensor but where the list has a tensor for it: "dlogits".
LayerDescription describe_embedding(const deck::ModelConfig& model);
LayerDescription describe_head(const deck::ModelConfig& model);

/// The tensor uses the memory of another one.
bool shares_memory(const LayerDescription& part, const Tensor& tensor, Bytes element,
                   Bytes accumulate);
/// Bytes of the tensors with this home.
Bytes bytes_at(Home home, const LayerDescription& part, const LocalSizes& sizes, Bytes element,
               Bytes accumulate);

}  // namespace trireme::architecture
