#pragma once

#include <trireme/hugging_face/safetensors.hpp>
#include <trireme/hugging_face/tensor_folder.hpp>
#include <trireme/io/atomic_file.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::hugging_face {

/// Largest number of files; all files remain open until the last file is written.
inline constexpr std::int64_t shards_limit = 500;

/// Bytes of a size such as "5GB": an integer with the unit B, KB, MB, GB, TB (powers of 1000) or
/// KiB … TiB (powers of 1024); without a unit, bytes. std::nullopt for any other text, or unless
/// the size is from 1 to 2^60 bytes.
std::optional<std::int64_t> parse_size(std::string_view words);

/// Tensors [first, last) of a plan that share a file.
struct ShardPlan {
  std::size_t first = 0;
  std::size_t last = 0;
  std::int64_t bytes = 0;  ///< total size of the tensors
};

/// Assigns tensors to files in order. A file has at most `most_bytes` bytes of tensors, or a single
/// larger tensor. `most_bytes` = 0: one file.
std::vector<ShardPlan> plan_shards(const std::vector<TensorPlan>& tensors, std::int64_t most_bytes);

/// Writes tensors into a folder, as one file or as shards with an index (tensor_folder.hpp). Files
/// have temporary names until commit().
class FolderWriter {
 public:
  /// UsageError for more than shards_limit files. Error if several files do not fit on the file
  /// system. `most_bytes`: see plan_shards.
  FolderWriter(const std::string& folder, std::vector<TensorPlan> tensors, std::int64_t most_bytes);

  /// Appends the next bytes of the tensors, in the order of the plan.
  void append(const void* data, std::int64_t bytes);
  /// Completes all files and removes other weight files from the folder. Error unless exactly the
  /// planned bytes were appended.
  void commit();

  /// Paths of all files; with several files, the last path is the index.
  const std::vector<std::string>& paths() const { return paths_; }
  std::int64_t file_bytes() const { return file_bytes_; }  ///< total size of the files begun so far

 private:
  void begin_shard();
  std::string index_text() const;

  std::string folder_;
  std::vector<TensorPlan> tensors_;
  std::vector<ShardPlan> shards_;
  std::vector<std::string> paths_;
  std::unique_ptr<io::AtomicFile> index_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;
  std::int64_t left_ = 0;  ///< remaining bytes of the current file
  std::int64_t file_bytes_ = 0;
};

}  // namespace trireme::hugging_face
