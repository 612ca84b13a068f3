#pragma once

#include <trireme/checkpoint/reader.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/hugging_face/format.hpp>
#include <trireme/hugging_face/tensor_folder.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Weights between checkpoints and folders of safetensors files with Hugging Face's names
/// (format.hpp). Memory is that of the largest array and at most some 100 MiB.
namespace trireme::hugging_face {

/// The type of a checkpoint's weights. UsageError unless they are the arrays of this model, all of
/// one type.
DType weights_type(const checkpoint::Reader& reader, const deck::ModelConfig& model);

struct Exported {
  std::vector<std::string> paths;  ///< of all files; where there are several, the index last
  std::int64_t bytes = 0;          ///< of the files with tensors
};

/// Writes the weights into `folder`, in files of at most `shard_bytes` (0: one file), as numbers of
/// type `dtype`: the stored bits if that is the stored type, else rounded to the nearest, ties to
/// even. Error naming the array if a finite number becomes infinite.
Exported export_weights(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                        DType dtype, const std::string& folder, std::int64_t shard_bytes = 0);

/// Writes the weights of a folder as a checkpoint of step 0 in `directory`, without any optimizer
/// state, as numbers of type `dtype`. Errors as those of match and export_weights; then the
/// directory has no new checkpoint.
void import_weights(const TensorFolder& folder, const deck::ModelConfig& model, DType dtype,
                    const std::string& directory, const std::string& deck_toml);

}  // namespace trireme::hugging_face
