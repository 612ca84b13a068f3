#pragma once

#include <trireme/architecture/layer.hpp>
#include <trireme/architecture/local_sizes.hpp>

namespace trireme::architecture {

/// The embedding and the head as lists of operations, from which arrays, memory, messages, FLOPs
/// and the fields of a batch are derived. None of their steps is recomputed. A gradient overwrites
/// its tensor, unless the list has a separate tensor for it such as "dlogits".
LayerDescription describe_embedding(const deck::ModelConfig& model);
LayerDescription describe_head(const deck::ModelConfig& model);

/// Whether the tensor uses the memory of another one.
bool shares_memory(const LayerDescription& part, const Tensor& tensor, Bytes element,
                   Bytes accumulate);
/// Total bytes of the tensors with this home.
Bytes bytes_at(Home home, const LayerDescription& part, const LocalSizes& sizes, Bytes element,
               Bytes accumulate);

}  // namespace trireme::architecture
