#pragma once

#include <trireme/hugging_face/format.hpp>
#include <trireme/hugging_face/tensor_folder.hpp>

#include <vector>

namespace trireme::hugging_face {

/// The stored tensors for format.tensors(model), in the same order. A copy of Copy::Use::none
/// replaces a missing original. UsageError that lists tensors that are missing, unknown, duplicate,
/// or of another shape or type, and tied copies that differ from their original.
std::vector<StoredTensor> match(const TensorFolder& folder, const Format& format,
                                const deck::ModelConfig& model);

}  // namespace trireme::hugging_face
