#include <trireme/hugging_face/match.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <cstring>
#include <map>

namespace trireme::hugging_face {
namespace {

/// Stored tensors by their current names.
using Stored = std::map<std::string, StoredTensor>;

std::string described(const TensorInfo& tensor) {
  return text(tensor.type, " ", checkpoint::shape_text(tensor.shape));
}

Stored stored_tensors(const TensorFolder& folder, const Format& format,
                      const deck::ModelConfig& model, Complaints& complaints) {
  Stored stored;
  for (const StoredTensor& tensor : folder.tensors()) {
    const std::string name = format.today(tensor.info->name, model);
    if (name.empty()) continue;
    const auto [place, fresh] = stored.emplace(name, tensor);
    if (!fresh)
      complaints.add(shortened(tensor.info->name), " and ", shortened(place->second.info->name),
                     " are the same tensor");
  }
  return stored;
}

void expect_copy(const StoredTensor& copy, const StoredTensor& of, Complaints& complaints) {
  const TensorInfo& a = *copy.info;
  const TensorInfo& b = *of.info;
  if (a.type != b.type || a.shape != b.shape)
    return complaints.add(a.name, " is ", described(a), ", but ", b.name, " is ", described(b),
                          ", and they are tied");
  constexpr std::int64_t most = 1 << 20;
  std::vector<char> left(static_cast<std::size_t>(std::min(most, a.bytes)));
  std::vector<char> right(left.size());
  for (std::int64_t at = 0; at < a.bytes; at += most) {
    const std::int64_t bytes = std::min(most, a.bytes - at);
    copy.read(at, bytes, left.data());
    of.read(at, bytes, right.data());
    if (std::memcmp(left.data(), right.data(), static_cast<std::size_t>(bytes)) != 0)
      return complaints.add(a.name, " is not equal to ", b.name, ", but they are tied; ",
                            "if they are not, set \"tie_word_embeddings\": false in config.json");
  }
}

}  // namespace

std::vector<StoredTensor> match(const TensorFolder& folder, const Format& format,
                                const deck::ModelConfig& model) {
  Complaints complaints;
  Stored stored = stored_tensors(folder, format, model, complaints);
  for (const Copy& copy : format.copies(model)) {
    const auto found = stored.find(copy.name);
    if (found == stored.end()) continue;
    const auto of = stored.find(copy.of);
    if (copy.use == Copy::Use::tied && of == stored.end()) continue;
    if (of == stored.end())
      stored.emplace(copy.of, found->second);
    else if (copy.use == Copy::Use::tied)
      expect_copy(found->second, of->second, complaints);
    stored.erase(copy.name);
  }
  std::vector<StoredTensor> matched;
  for (const Tensor& wanted : format.tensors(model)) {
    const auto found = stored.find(wanted.name);
    if (found == stored.end()) {
      complaints.add(wanted.name, " is missing");
      continue;
    }
    const TensorInfo& info = *found->second.info;
    if (info.shape != wanted.shape || !info.dtype())
      complaints.add(info.name, " is ", described(info), ", expected F64, F32, BF16 or F16 ",
                     checkpoint::shape_text(wanted.shape));
    matched.push_back(found->second);
    stored.erase(found);
  }
  for (const auto& [name, tensor] : stored)
    complaints.add(shortened(tensor.info->name), ", ", described(*tensor.info),
                   ", is not a tensor of the model");
  complaints.raise(text(folder.path(), ": does not hold the model that config.json describes"),
                   text("expected the tensors of a ", format.model_class(model)));
  return matched;
}

}  // namespace trireme::hugging_face
