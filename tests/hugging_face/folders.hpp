#pragma once

#include <trireme/hugging_face/folder_writer.hpp>
#include <trireme/hugging_face/weights.hpp>

#include "support.hpp"

namespace trireme::hugging_face::testing {

using Words = std::vector<std::uint32_t>;

inline Words values(const TensorFolder& folder, const std::string& name) {
  for (const StoredTensor& tensor : folder.tensors()) {
    if (tensor.info->name != name) continue;
    Words out(static_cast<std::size_t>(tensor.info->elements()));
    tensor.read(0, tensor.info->bytes, out.data());
    return out;
  }
  return {};
}

inline Words part(const Words& all, std::size_t place, std::size_t of) {
  const auto size = static_cast<std::ptrdiff_t>(all.size() / of);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(place) * size;
  return {first, first + size};
}

/// Writes tensors of zeros, except for one byte at the end of `odd`.
inline void write_zeros(const std::string& folder, const std::vector<TensorPlan>& plan,
                        std::int64_t shard_bytes = 0, const std::string& odd = "") {
  FolderWriter writer(folder, plan, shard_bytes);
  for (const auto& tensor : plan) {
    const auto bytes = checkpoint::volume(tensor.shape) * size_of(tensor.dtype);
    std::string zeros(static_cast<std::size_t>(bytes), '\0');
    if (tensor.name == odd) zeros.back() = 1;
    writer.append(zeros.data(), bytes);
  }
  writer.commit();
}

inline std::vector<TensorPlan> plan_of(const deck::ModelConfig& model) {
  std::vector<TensorPlan> plan;
  for (const auto& tensor : format_of(model.family).tensors(model))
    plan.push_back({tensor.name, DType::fp32, tensor.shape});
  return plan;
}

}  // namespace trireme::hugging_face::testing
