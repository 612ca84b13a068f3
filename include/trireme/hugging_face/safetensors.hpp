#pragma once

#include <trireme/base/types.hpp>
#include <trireme/checkpoint/hyperslab.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The safetensors format (github.com/huggingface/safetensors): 8 bytes with the header's length,
/// little endian; the header, JSON {name: {dtype, shape, data_offsets}}; the tensors' bytes, little
/// endian, last axis fastest, without gaps.
namespace trireme::hugging_face {

using checkpoint::Extents;

/// The format's limit for the length of the header in bytes.
inline constexpr std::int64_t safetensors_header_limit = 100'000'000;

/// The format's name of a floating-point DType: "F32"; empty for other types.
std::string_view safetensors_name(DType type);

/// One tensor of a file.
struct TensorInfo {
  std::string name;
  std::string type;  ///< the format's name: "F32", "BOOL"
  Extents shape;
  std::int64_t begin = 0;  ///< offset of the first byte in the file
  std::int64_t bytes = 0;

  /// The type if it is fp64, fp32, bf16 or fp16; std::nullopt for the format's other types.
  std::optional<DType> dtype() const;
  std::int64_t elements() const { return checkpoint::volume(shape); }
};

/// A safetensors file opened for reading. Reads only requested data.
class SafetensorsFile {
 public:
  /// UsageError naming file, tensor, value and remedy unless the header is valid and its tensors
  /// fill the data without gaps.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// Tensors in the order of their data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// The tensor with this name; null if there is none.
  const TensorInfo* find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// Reads bytes [begin, begin + bytes) of a tensor.
  void read(const TensorInfo& tensor, std::int64_t begin, std::int64_t bytes, void* out) const;

 private:
  io::InputFile file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t> numbers_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to write.
struct TensorPlan {
  std::string name;
  DType dtype = DType::fp32;  ///< fp64, fp32, bf16 or fp16
  Extents shape;
};

/// Writes a safetensors file, which appears complete at commit(), or not at all.
class SafetensorsWriter {
 public:
  /// Checks the free space of the file system. transformers requires the metadata {"format": "pt"}.
  SafetensorsWriter(const std::string& path, const std::vector<TensorPlan>& tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  std::int64_t file_bytes() const { return end_; }
  /// Appends the next bytes of the tensors, in the order of the plan.
  void append(const void* data, std::int64_t bytes);
  /// Error unless exactly the planned bytes were appended.
  void commit();

 private:
  io::AtomicFile file_;
  std::int64_t at_ = 0;
  std::int64_t end_ = 0;
};

}  // namespace trireme::hugging_face
