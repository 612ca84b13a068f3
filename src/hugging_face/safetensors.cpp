// Reads and writes safetensors files. The whole header is checked before data is read.
#include <trireme/hugging_face/safetensors.hpp>

#include <trireme/base/check.hpp>
#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/strict_json.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

namespace trireme::hugging_face {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t length_bytes = 8;
constexpr const char* metadata_key = "__metadata__";
constexpr const char* file_remedy = "; copy or download the file again";

struct TypeName {
  std::string_view name;
  std::int64_t bytes;
  std::optional<DType> dtype;
};

constexpr std::array<TypeName, 16> tensor_types{{{"F64", 8, DType::fp64},
                                                 {"F32", 4, DType::fp32},
                                                 {"BF16", 2, DType::bf16},
                                                 {"F16", 2, DType::fp16},
                                                 {"I64", 8, {}},
                                                 {"I32", 4, {}},
                                                 {"I16", 2, {}},
                                                 {"I8", 1, {}},
                                                 {"U64", 8, {}},
                                                 {"U32", 4, {}},
                                                 {"U16", 2, {}},
                                                 {"U8", 1, {}},
                                                 {"BOOL", 1, {}},
                                                 {"C64", 8, {}},
                                                 {"F8_E4M3", 1, {}},
                                                 {"F8_E5M2", 1, {}}}};

const TypeName* known_type(std::string_view name) {
  const auto* found = std::ranges::find(tensor_types, name, &TypeName::name);
  return found == tensor_types.end() ? nullptr : found;
}

std::string read_header(const io::InputFile& file) {
  const std::string& path = file.path();
  check_usage(file.size() >= length_bytes, path, ": ", file.size(),
              " bytes are too few for a safetensors file", file_remedy);
  std::array<unsigned char, length_bytes> length_field{};
  file.read(0, length_field.data(), length_field.size());
  std::uint64_t length = 0;
  for (std::size_t i = length_field.size(); i-- > 0;) length = length << 8 | length_field[i];
  const auto room = static_cast<std::uint64_t>(file.size() - length_bytes);
  check_usage(length <= static_cast<std::uint64_t>(safetensors_header_limit), path,
              " is not a safetensors file: its header would have ", length,
              " bytes; download it again (with `git lfs pull` if it is a Git LFS pointer)");
  check_usage(length >= 2 && length <= room, path, ": a header of ", length,
              " bytes in a file that has ", room, " after its first ", length_bytes, file_remedy);
  std::string content(static_cast<std::size_t>(length), '\0');
  file.read(length_bytes, content.data(), content.size());
  check_usage(content.front() == '{', path, ": the header does not begin with '{'",
              "; give a safetensors file");
  return content;
}

class TensorParser {
 public:
  TensorParser(const std::string& path, const std::string& name, const Json& tensor)
      : where_(text(path, ": tensor '", shortened(name), "': ")), json_(tensor) {
    check_usage(tensor.is_object(), where_, "is ", tensor.type_name(), ", expected an object",
                file_remedy);
    tensor_.name = name;
  }

  /// `data`: offset of the data in the file; `data_bytes`: size of the data.
  TensorInfo parse(std::int64_t data, std::int64_t data_bytes) {
    const Json& type = member("dtype");
    check_usage(type.is_string(), where_, "dtype is ", type.type_name(), ", expected a string",
                file_remedy);
    tensor_.type = type.get<std::string>();
    const TypeName* known = known_type(tensor_.type);
    check_usage(known != nullptr, where_, "the type '", shortened(tensor_.type),
                "' is unknown; convert the tensor to F64, F32, BF16 or F16");
    tensor_.shape = numbers("shape");
    const std::int64_t wanted = product(known->bytes);
    const Extents offsets = numbers("data_offsets");
    check_usage(offsets.size() == 2, where_, "data_offsets has ", offsets.size(),
                " numbers, expected 2", file_remedy);
    check_usage(offsets[0] <= offsets[1] && offsets[1] <= data_bytes, where_, "data_offsets [",
                offsets[0], ", ", offsets[1], "] exceed the ", data_bytes, " bytes of data",
                file_remedy);
    check_usage(offsets[1] - offsets[0] == wanted, where_, "has ", offsets[1] - offsets[0],
                " bytes, but ", tensor_.type, " ", checkpoint::shape_text(tensor_.shape), " takes ",
                wanted, file_remedy);
    tensor_.begin = data + offsets[0];
    tensor_.bytes = wanted;
    return tensor_;
  }

 private:
  const Json& member(const char* key) const {
    const auto found = json_.find(key);
    check_usage(found != json_.end(), where_, "has no ", key, file_remedy);
    return *found;
  }

  Extents numbers(const char* key) const {
    const Json& list = member(key);
    check_usage(list.is_array() && list.size() <= 64, where_, key,
                " is not a list of numbers (at most 64)", file_remedy);
    Extents out;
    for (const Json& item : list) {
      const bool fits = item.is_number_unsigned() && item.get<std::uint64_t>() <= std::uint64_t{1}
                                                                                      << 60;
      check_usage(fits, where_, key, " holds ", shortened(item.dump()),
                  ", expected whole numbers from 0 to 2^60", file_remedy);
      out.push_back(item.get<std::int64_t>());
    }
    return out;
  }

  std::int64_t product(std::int64_t element_bytes) const {
    std::int64_t bytes = element_bytes;
    const bool empty = std::ranges::find(tensor_.shape, 0) != tensor_.shape.end();
    for (const std::int64_t extent : tensor_.shape)
      check_usage(empty || (!__builtin_mul_overflow(bytes, extent, &bytes) &&
                            bytes <= std::int64_t{1} << 60),
                  where_, "the shape ", checkpoint::shape_text(tensor_.shape),
                  " has more than 2^60 bytes", file_remedy);
    return empty ? 0 : bytes;
  }

  std::string where_;
  const Json& json_;
  TensorInfo tensor_;
};

/// Checks that each byte of the data belongs to exactly one tensor.
void expect_no_holes(const std::string& path, const std::vector<TensorInfo>& tensors,
                     std::int64_t data, std::int64_t end) {
  std::int64_t at = data;
  for (const TensorInfo& tensor : tensors) {
    check_usage(tensor.begin == at, path, ": tensor '", shortened(tensor.name), "' begins at byte ",
                tensor.begin - data, " of the data, ",
                tensor.begin < at ? "within the previous tensor" : "after a gap", ", expected ",
                at - data, file_remedy);
    at += tensor.bytes;
  }
  check_usage(at == end, path, ": the tensors end at byte ", at - data, " of ", end - data,
              " bytes of data", file_remedy);
}

}  // namespace

std::string_view safetensors_name(DType type) {
  const auto* found = std::ranges::find(tensor_types, std::optional<DType>(type), &TypeName::dtype);
  return found == tensor_types.end() ? std::string_view() : found->name;
}

std::optional<DType> TensorInfo::dtype() const {
  const TypeName* known = known_type(type);
  return known == nullptr ? std::nullopt : known->dtype;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const std::string header = read_header(file_);
  const std::int64_t data = length_bytes + std::ssize(header);
  const Json members =
      parse_strict(header, path, {3, "the header", "; give a complete safetensors file"});
  for (const auto& [name, value] : members.items()) {
    if (name != metadata_key) {
      tensors_.push_back(TensorParser(path, name, value).parse(data, file_.size() - data));
      continue;
    }
    if (value.is_null()) continue;  // the safetensors library reads null as no metadata
    check_usage(value.is_object(), path, ": ", metadata_key, " is ", value.type_name(),
                ", expected an object of strings or null", file_remedy);
    for (const auto& [key, word] : value.items()) {
      check_usage(word.is_string(), path, ": ", metadata_key, " '", shortened(key),
                  "' is not a string", file_remedy);
      metadata_[key] = word.get<std::string>();
    }
  }
  std::ranges::sort(tensors_, {},
                    [](const TensorInfo& tensor) { return std::pair(tensor.begin, tensor.bytes); });
  expect_no_holes(path, tensors_, data, file_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) numbers_[tensors_[i].name] = i;
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::read(const TensorInfo& tensor, std::int64_t begin, std::int64_t bytes,
                           void* out) const {
  check(begin >= 0 && bytes >= 0 && begin + bytes <= tensor.bytes, path(), ": tensor '",
        tensor.name, "': bytes [", begin, ", ", begin + bytes, ") of ", tensor.bytes);
  file_.read(tensor.begin + begin, out, static_cast<std::size_t>(bytes));
}

namespace {

constexpr std::int64_t alignment = 8;

/// The length of the JSON text, and the text, padded with spaces. Sets `end` to the data's size.
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
