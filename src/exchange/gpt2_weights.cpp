#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/exchange/convert.hpp>
#include <trireme/exchange/gpt2.hpp>
#include <trireme/exchange/gpt2_weights.hpp>
#include <trireme/exchange/transpose.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace trireme::exchange {
namespace {

using architecture::ArraySpec;
using Buffer = std::vector<char>;

constexpr std::int64_t panel_bytes = 4 << 20;   ///< converted or transposed at a time
constexpr std::int64_t shard_bytes = 64 << 20;  ///< of arrays that wait for their shard

Buffer buffer(std::int64_t elements, DType type) {
  return Buffer(static_cast<std::size_t>(elements * size_of(type)));
}

/// Hands [first, first + count) of `n` over in order, `unit` elements each, a panel at a time.
template <class Use>
void for_each_panel(std::int64_t n, std::int64_t unit, const Use& use) {
  const std::int64_t most =
      std::max<std::int64_t>(1, panel_bytes / 8 / std::max<std::int64_t>(1, unit));
  for (std::int64_t first = 0; first < n; first += most) use(first, std::min(most, n - first));
}

/// `count` numbers as another type; a number that does not fit is an error that names `what`.
void convert_checked(const std::string& what, DType from, const void* in, DType to, void* out,
                     std::int64_t count) {
  const auto lost = convert(from, in, to, out, count);
  check_usage(!lost, what, ": holds ", lost ? number_at(from, in, *lost) : 0.0,
              ", which is too large for ", name_of(to), "; choose a type with a larger range");
}

std::map<std::string, ArraySpec> specs_of(const deck::ModelConfig& model) {
  std::map<std::string, ArraySpec> specs;
  for (const ArraySpec& spec : architecture::describe(model).arrays) specs[spec.name] = spec;
  return specs;
}

/// A tensor as a matrix of what its arrays are: [rows, columns] before it is transposed.
std::int64_t columns_of(const Gpt2Tensor& tensor) {
  return tensor.transposed ? tensor.shape.front() : 1;
}

/// The tensor's numbers in the file's order, in panels of `type`.
template <class Use>
void for_each_part(const Gpt2Tensor& tensor, const Buffer& matrix, DType type, const Use& use) {
  const std::int64_t columns = columns_of(tensor);
  const std::int64_t rows = checkpoint::volume(tensor.shape) / columns;
  if (!tensor.transposed)
    return for_each_panel(rows, 1, [&](std::int64_t first, std::int64_t count) {
      use(matrix.data() + first * size_of(type), count);
    });
  Buffer panel;
  for_each_panel(columns, rows, [&](std::int64_t first, std::int64_t count) {
    panel.resize(static_cast<std::size_t>(count * rows * size_of(type)));
    transpose_columns(matrix.data(), rows, columns, first, first + count, size_of(type),
                      panel.data());
    use(panel.data(), count * rows);
  });
}

/// Arrays that become a checkpoint, shard by shard.
class Shards {
 public:
  Shards(const std::string& directory, DType type)
      : directory_(directory), folder_(checkpoint::begin(directory, 0)), type_(type) {}

  /// Memory for the next array, valid until flush().
  char* add(const ArraySpec& spec) {
    arrays_.emplace_back(&spec, buffer(spec.elements(), type_));
    bytes_ += std::ssize(arrays_.back().second);
    return arrays_.back().second.data();
  }

  void flush_if_large() {
    if (bytes_ >= shard_bytes) flush();
  }

  void flush() {
    if (arrays_.empty()) return;
    std::vector<checkpoint::SliceView> slices;
    for (const auto& [spec, data] : arrays_)
      slices.push_back({spec->name, type_, spec->shape, Extents(spec->shape.size(), 0), spec->shape,
                        data.data()});
    const auto number = static_cast<int>(summaries_.size());
    summaries_.push_back(checkpoint::write_shard(folder_, number, slices));
    arrays_.clear();
    bytes_ = 0;
  }

  void commit(const std::string& deck_toml) {
    flush();
    checkpoint::commit(directory_, {0, 0, deck_toml}, summaries_, {});
  }

 private:
  std::string directory_;
  std::string folder_;
  DType type_;
  std::vector<std::pair<const ArraySpec*, Buffer>> arrays_;
  std::int64_t bytes_ = 0;
  std::vector<checkpoint::ShardSummary> summaries_;
};

/// Numbers [first, first + count) of a tensor, as `type`.
void read_numbers(const SafetensorsFile& file, const TensorInfo& tensor, std::int64_t first,
                  std::int64_t count, DType type, char* out) {
  const std::string what = text(file.path(), ": tensor '", tensor.name, "'");
  const DType stored = tensor.dtype().value();
  Buffer raw;
  for_each_panel(count, 1, [&](std::int64_t begin, std::int64_t n) {
    raw.resize(static_cast<std::size_t>(n * size_of(stored)));
    file.read(tensor, (first + begin) * size_of(stored), n * size_of(stored), raw.data());
    convert_checked(what, stored, raw.data(), type, out + begin * size_of(type), n);
  });
}

/// The arrays of a tensor, one behind the other.
void add_arrays(const SafetensorsFile& file, const TensorInfo& found, const Gpt2Tensor& tensor,
                const std::map<std::string, ArraySpec>& specs, DType type, Shards& shards) {
  // The file's matrix is [columns, rows] of the arrays' one.
  const std::int64_t columns = columns_of(tensor);
  const std::int64_t rows = found.elements() / columns;
  Buffer all;
  if (tensor.transposed) {
    all = buffer(found.elements(), type);
    read_numbers(file, found, 0, found.elements(), type, all.data());
  }
  std::int64_t row = 0;
  for (const std::string& name : tensor.arrays) {
    const ArraySpec& spec = specs.at(name);
    const std::int64_t here = spec.elements() / columns;
    char* out = shards.add(spec);
    if (tensor.transposed)
      transpose_columns(all.data(), columns, rows, row, row + here, size_of(type), out);
    else
      read_numbers(file, found, row, here, type, out);
    row += here;
  }
}

}  // namespace

DType weights_type(const checkpoint::Reader& reader, const deck::ModelConfig& model) {
  const auto specs = specs_of(model);
  const checkpoint::ArrayInfo* first = nullptr;
  std::size_t found = 0;
  for (const checkpoint::ArrayInfo& array : reader.arrays()) {
    if (array.name.starts_with("optimizer.")) continue;
    const auto spec = specs.find(array.name);
    check_usage(spec != specs.end(), reader.folder(), ": holds the array '", array.name,
                "', which the model of its ", checkpoint::deck_name, " has not");
    check_usage(array.shape == spec->second.shape, reader.folder(), ": array '", array.name,
                "' is ", checkpoint::shape_text(array.shape), ", in the model of its ",
                checkpoint::deck_name, " ", checkpoint::shape_text(spec->second.shape));
    if (first == nullptr) first = &array;
    check_usage(array.dtype == first->dtype && !safetensors_name(array.dtype).empty(),
                reader.folder(), ": array '", array.name, "' is ", name_of(array.dtype), ", '",
                first->name, "' is ", name_of(first->dtype),
                "; expected floating-point numbers of one type");
    ++found;
  }
  for (const auto& [name, spec] : specs)
    check_usage(found == specs.size() || reader.has(name), reader.folder(), ": holds no array '",
                name, "', which the model of its ", checkpoint::deck_name, " has");
  return first->dtype;
}

std::int64_t export_gpt2(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                         DType dtype, const std::string& path) {
  const DType stored = weights_type(reader, model);
  const auto specs = specs_of(model);
  const auto tensors = gpt2_tensors(model);
  std::vector<TensorPlan> plan;
  for (const Gpt2Tensor& tensor : tensors) plan.push_back({tensor.name, dtype, tensor.shape});
  SafetensorsWriter out(path, plan);
  Buffer matrix;
  Buffer converted;
  for (const Gpt2Tensor& tensor : tensors) {
    matrix = buffer(checkpoint::volume(tensor.shape), stored);
    char* at = matrix.data();
    for (const std::string& name : tensor.arrays) {
      const ArraySpec& spec = specs.at(name);
      reader.read(name, stored, spec.shape, at);
      at += spec.elements() * size_of(stored);
    }
    const std::string what = text(reader.folder(), ": '", join(tensor.arrays, "', '"), "'");
    for_each_part(tensor, matrix, stored, [&](const char* numbers, std::int64_t count) {
      converted.resize(static_cast<std::size_t>(count * size_of(dtype)));
      convert_checked(what, stored, numbers, dtype, converted.data(), count);
      out.append(converted.data(), std::ssize(converted));
    });
  }
  out.commit();
  return out.file_bytes();
}

void import_gpt2(const SafetensorsFile& file, const deck::ModelConfig& model, DType dtype,
                 const std::string& directory, const std::string& deck_toml) {
  const auto found = match_gpt2(file, model);
  const auto specs = specs_of(model);
  const auto tensors = gpt2_tensors(model);
  Shards shards(directory, dtype);
  try {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      add_arrays(file, found[i], tensors[i], specs, dtype, shards);
      shards.flush_if_large();
    }
    shards.commit(deck_toml);
  } catch (...) {
    checkpoint::abandon(directory, 0);
    throw;
  }
}

}  // namespace trireme::exchange
