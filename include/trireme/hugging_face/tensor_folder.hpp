#pragma once

#include <trireme/hugging_face/safetensors.hpp>

#include <deque>
#include <map>
#include <string>
#include <vector>

/// A model's tensors in a folder: one file model.safetensors, or shards
/// model-00001-of-00003.safetensors … with an index that names the shard of each tensor.
namespace trireme::hugging_face {

inline constexpr const char* single_name = "model.safetensors";
inline constexpr const char* index_name = "model.safetensors.index.json";

/// "model-00001-of-00003.safetensors"; numbers begin with 1.
std::string shard_name(std::int64_t number, std::int64_t of);

/// Sorted paths of the single file, the shards and the index in a folder, if they exist.
std::vector<std::string> weight_files(const std::string& folder);

/// The file name of each tensor, by tensor name, from an index. UsageError unless `weight_map` maps
/// unique names to plain names of safetensors files. `path` is for messages.
std::map<std::string, std::string> parse_shard_index(const std::string& content,
                                                     const std::string& path);

/// A tensor and the file that contains it.
struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* info = nullptr;

  void read(std::int64_t begin, std::int64_t bytes, void* out) const {
    file->read(*info, begin, bytes, out);
  }
};

/// The safetensors files of a folder, opened for reading.
class TensorFolder {
 public:
  /// UsageError if there is no safetensors file, if there are both a single file and an index, if a
  /// shard is missing or damaged, or if shards and index do not match.
  explicit TensorFolder(const std::string& folder);
  TensorFolder(const TensorFolder&) = delete;
  TensorFolder& operator=(const TensorFolder&) = delete;

  /// Path of the single file or of the index.
  const std::string& path() const { return path_; }
  /// Tensors in the order of files and data.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

 private:
  std::string path_;
  std::deque<SafetensorsFile> files_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace trireme::hugging_face
