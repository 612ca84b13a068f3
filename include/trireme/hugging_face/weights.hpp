#pragma once

#include <trireme/checkpoint/reader.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/format.hpp>
#include <trireme/hugging_face/tensor_folder.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Export and import of weights between checkpoints and folders of safetensors files with Hugging
/// Face's names (format.hpp).
namespace trireme::hugging_face {

/// The values of a tensor: numbers, or blocks of MXFP4 with their scales.
struct StoredValues {
  StoredTensor values;
  StoredTensor scales = {};

  bool packed() const { return scales.info != nullptr; }
};

/// Sets tied_embeddings of the file's model to false if the folder has another output matrix than
/// the token table, and the weights decide in this family (Format::own_output).
void find_own_output(ModelFile& file, const TensorFolder& folder);

/// The stored values for format.tensors(model), in the same order. A copy of Copy::Use::none
/// replaces a missing original. UsageError that lists tensors that are missing, unknown, duplicate,
/// or of another shape or type, and tied copies that differ from their original.
std::vector<StoredValues> match(const TensorFolder& folder, const Format& format,
                                const deck::ModelConfig& model);

/// Type of a checkpoint's weights. UsageError unless the arrays, except optimizer state and fp8
/// maxima, are exactly this model's arrays, all of one floating-point type.
DType weights_type(const checkpoint::Reader& reader, const deck::ModelConfig& model);

struct Exported {
  std::vector<std::string> paths;  ///< all files, the index last if there are several
  std::int64_t bytes = 0;          ///< total size of the files with tensors
};

/// Writes the weights into `folder`, in files of at most `shard_bytes` (0: one file), as values of
/// type `dtype`: the stored bits if the checkpoint has this type, otherwise rounded to nearest,
/// ties to even. Wide tensors (format.hpp) are fp32 at least. UsageError that names the array if a
/// finite value is too large for `dtype`. Merges adapters in double precision, and rounds the
/// merged weights to the checkpoint's type.
Exported export_weights(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                        DType dtype, const std::string& folder, std::int64_t shard_bytes = 0);

/// Writes only the adapters, as PEFT's adapter_model.safetensors.
Exported export_adapters(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                         DType dtype, const std::string& folder);

/// Writes the weights of a folder as a new checkpoint in `directory`, without optimizer state, as
/// values of type `dtype`. `state`: state of the run, at step 0. `adapter`: file of PEFT's
/// adapters; null: the checkpoint has no adapters. Returns a line for each tensor with infinities
/// or NaNs, which are an error unless `allow_nonfinite`. After an error, the directory has no new
/// checkpoint. `original`: the folder's model, if the experts of `model` begin as copies of its
/// feed-forward parts (upcycle.hpp); `seed` is that of the routers.
std::vector<std::string> import_weights(const TensorFolder& folder, const deck::ModelConfig& model,
                                        DType dtype, const std::string& directory,
                                        const checkpoint::RunState& state,
                                        bool allow_nonfinite = false,
                                        const SafetensorsFile* adapter = nullptr,
                                        const deck::ModelConfig* original = nullptr,
                                        std::uint64_t seed = 0);

}  // namespace trireme::hugging_face
