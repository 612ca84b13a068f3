#pragma once

#include <trireme/checkpoint/reader.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/exchange/safetensors.hpp>

#include <optional>
#include <string>

/// Weights between checkpoints and files of Hugging Face's GPT-2 (see gpt2.hpp). Memory is that of
/// the largest array and at most some 100 MiB.
namespace trireme::exchange {

/// The type of a checkpoint's weights. UsageError unless they are the arrays of this model, all of
/// one type.
DType weights_type(const checkpoint::Reader& reader, const deck::ModelConfig& model);

/// Writes the weights as one safetensors file, as numbers of type `dtype`: the stored bits if that
/// is the stored type, else rounded to the nearest, ties to even. Error naming the tensor if a
/// finite number becomes infinite. Returns the file's size in bytes.
std::int64_t export_gpt2(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                         DType dtype, const std::string& path);

/// Writes the weights of a file as a checkpoint of step 0 in `directory`, without any optimizer
/// state, as numbers of type `dtype`. Errors as those of match_gpt2 and export_gpt2; then the
/// directory has no new checkpoint.
void import_gpt2(const SafetensorsFile& file, const deck::ModelConfig& model, DType dtype,
                 const std::string& directory, const std::string& deck_toml);

}  // namespace trireme::exchange
