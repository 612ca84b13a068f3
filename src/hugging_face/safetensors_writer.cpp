#include <trireme/base/check.hpp>
#include <trireme/hugging_face/safetensors.hpp>

#include <nlohmann/json.hpp>

#include <set>

namespace trireme::hugging_face {
namespace {

constexpr std::int64_t alignment = 8;

/// Length and JSON, padded with spaces; `end` becomes the size of the data.
std::string header_of(const std::string& path, const std::vector<TensorPlan>& tensors,
                      const std::map<std::string, std::string>& metadata, std::int64_t& end) {
  nlohmann::ordered_json json;
  json["__metadata__"] = metadata;
  std::set<std::string> names{"__metadata__"};
  end = 0;
  for (const TensorPlan& tensor : tensors) {
    const auto type = safetensors_name(tensor.dtype);
    check(!type.empty(), path, ": tensor '", tensor.name, "' is ", name_of(tensor.dtype),
          ", expected fp64, fp32, bf16 or fp16");
    check(names.insert(tensor.name).second, path, ": two tensors are named '", tensor.name, "'");
    const std::int64_t begin = end;
    end += checkpoint::volume(tensor.shape) * size_of(tensor.dtype);
    json[tensor.name] = {{"dtype", type}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string content = json.dump();
  while (std::ssize(content) % alignment != 0) content += ' ';
  check(std::ssize(content) <= safetensors_header_limit, path, ": a header of ", content.size(),
        " bytes, expected at most ", safetensors_header_limit);
  std::string length(alignment, '\0');
  for (std::size_t i = 0; i < length.size(); ++i)
    length[i] = static_cast<char>(content.size() >> (8 * i) & 0xff);
  return length + content;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     const std::vector<TensorPlan>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  const std::string header = header_of(path, tensors, metadata, end_);
  end_ += std::ssize(header);
  file_.probe_space(end_);
  file_.write(0, header.data(), header.size());
  at_ = std::ssize(header);
}

void SafetensorsWriter::append(const void* data, std::int64_t bytes) {
  check(bytes <= end_ - at_, file_.path(), ": ", bytes, " more bytes, but ", end_ - at_,
        " were planned");
  file_.write(at_, data, static_cast<std::size_t>(bytes));
  at_ += bytes;
}

void SafetensorsWriter::commit() {
  check(at_ == end_, file_.path(), ": ", at_, " bytes were written, but ", end_, " were planned");
  file_.commit();
}

}  // namespace trireme::hugging_face
