#pragma once

#include <trireme/hugging_face/format.hpp>
#include <trireme/hugging_face/tensor_folder.hpp>

#include <vector>

namespace trireme::hugging_face {

/// The stored tensor for each of format.tensors(model), in their order. Tensors that are no weights
/// are passed over, as are copies (Format::copies) that are bit for bit what they copy. One
/// UsageError names all that is missing, left over, there twice, or of another shape or type.
std::vector<StoredTensor> match(const TensorFolder& folder, const Format& format,
                                const deck::ModelConfig& model);

}  // namespace trireme::hugging_face
