#pragma once

#include <trireme/checkpoint/reader.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/hugging_face/format.hpp>
#include <trireme/hugging_face/tensor_folder.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Export and import of weights between checkpoints and folders of safetensors files with Hugging
/// Face's names (format.hpp). Memory: the largest array plus about 100 MiB at most.
namespace trireme::hugging_face {

/// Type of a checkpoint's weights. UsageError unless they are exactly the arrays of this model, all
/// of one type.
DType weights_type(const checkpoint::Reader& reader, const deck::ModelConfig& model);

struct Exported {
  std::vector<std::string> paths;  ///< all files, the index last if there are several
  std::int64_t bytes = 0;          ///< size of the files with tensors
};

/// Writes the weights into `folder`, in files of at most `shard_bytes` (0: one file), as values of
/// type `dtype`: the stored bits if that is the stored type, else rounded to nearest, ties to even.
/// Error naming the array if a finite value becomes infinite. The updates of adapters are added to
/// the weights in double precision.
Exported export_weights(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                        DType dtype, const std::string& folder, std::int64_t shard_bytes = 0);

/// Writes only the adapters, as PEFT's adapter_model.safetensors.
Exported export_adapters(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                         DType dtype, const std::string& folder);

/// Writes the weights of a folder as a checkpoint of `state`, whose step is 0, in `directory`,
/// without optimizer state, as values of type `dtype`. Errors as in match and export_weights; after
/// an error the directory has no new checkpoint. Infinities and NaNs are an error unless
/// `allow_nonfinite`. Returns a line for each tensor that has some. `adapter`: file of PEFT's
/// adapters, which the checkpoint then also contains; without it a model's adapters are omitted.
std::vector<std::string> import_weights(const TensorFolder& folder, const deck::ModelConfig& model,
                                        DType dtype, const std::string& directory,
                                        const checkpoint::RunState& state,
                                        bool allow_nonfinite = false,
                                        const SafetensorsFile* adapter = nullptr);

}  // namespace trireme::hugging_face
