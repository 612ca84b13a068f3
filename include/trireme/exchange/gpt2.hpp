#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/exchange/safetensors.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// The arrays of the family gpt under the names of Hugging Face's GPT2LMHeadModel.
namespace trireme::exchange {

/// A tensor of the file and the arrays that it is made of. The arrays, one behind the other, are a
/// matrix [rows, columns] (a vector: one column), of which the tensor is the same or the transpose:
/// the weights of GPT-2's Conv1D are [in, out], Trireme's are [out, in].
struct Gpt2Tensor {
  std::string name;  ///< "transformer.h.0.attn.c_attn.weight"
  Extents shape;
  std::vector<std::string> arrays;
  bool transposed = false;
};

/// All tensors of a model, in the order of the registry.
std::vector<Gpt2Tensor> gpt2_tensors(const deck::ModelConfig& model);

/// The file's tensor for each of gpt2_tensors, in their order. Names may lack "transformer."; the
/// masks `attn.bias` and `attn.masked_bias` are ignored, as is an lm_head.weight that is bit for
/// bit the token table of tied embeddings. One UsageError names all that is missing, left over or
/// of another shape or type.
std::vector<TensorInfo> match_gpt2(const SafetensorsFile& file, const deck::ModelConfig& model);

}  // namespace trireme::exchange
