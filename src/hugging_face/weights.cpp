// Export and import of weights, tensor by tensor, with conversion in panels. For an import, the
// stored tensors are first matched with the model's tensors by name.
#include <trireme/hugging_face/weights.hpp>

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/fp8.hpp>
#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/hugging_face/convert.hpp>
#include <trireme/hugging_face/folder_writer.hpp>
#include <trireme/hugging_face/peft.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

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

namespace {

using architecture::ArraySpec;
using Buffer = std::vector<char>;

/// Approximate size of the values that are converted or transposed at a time.
constexpr std::int64_t panel_bytes = 4 << 20;
/// Size of the collected arrays at which they are written as a shard.
constexpr std::int64_t waiting_bytes = 64 << 20;

Buffer buffer(std::int64_t elements, DType type) {
  return Buffer(static_cast<std::size_t>(elements * size_of(type)));
}

/// Calls use(first, count) for the panels of `n` rows in order. Each row has `unit` elements.
template <class Use>
void for_each_panel(std::int64_t n, std::int64_t unit, const Use& use) {
  const std::int64_t most =
      std::max<std::int64_t>(1, panel_bytes / 8 / std::max<std::int64_t>(1, unit));
  for (std::int64_t first = 0; first < n; first += most) use(first, std::min(most, n - first));
}

/// Converts `count` values to another type. UsageError that begins with `what` if a finite value is
/// too large for the type.
void convert_checked(const std::string& what, DType from, const void* in, DType to, void* out,
                     std::int64_t count) {
  const auto lost = convert(from, in, to, out, count);
  check_usage(!lost, what, ": contains ", lost ? number_at(from, in, *lost) : 0.0,
              ", which is too large for ", name_of(to), "; choose a type with a larger range");
}

/// Number of columns of the matrix of a tensor's concatenated pieces. A tensor that is not
/// transposed counts as one column.
std::int64_t columns_of(const Tensor& tensor) {
  return tensor.transposed ? tensor.shape.front() : 1;
}

/// Slice of an array that a piece refers to.
struct Part {
  Extents offset;
  Extents extent;
  std::int64_t first = 0;  ///< first element in the array

  Part(const ArraySpec& spec, const Piece& piece)
      : offset(spec.shape.size(), 0), extent(spec.shape) {
    for (std::size_t axis = 0; axis < piece.place.size(); ++axis) {
      const std::int64_t index = piece.place[axis];
      check(axis < extent.size() && index < extent[axis], spec.name, " ",
            checkpoint::shape_text(spec.shape), " has no part ", index, " of axis ", axis);
      offset[axis] = index;
      extent[axis] = 1;
      first += index * checkpoint::volume(extent);
    }
  }
  std::int64_t elements() const { return checkpoint::volume(extent); }
};

/// Calls use(numbers, count) for each panel of a tensor's values, in the order of the file.
/// `matrix`: the tensor's concatenated pieces.
template <class Use>
void for_each_part(const Tensor& tensor, const Buffer& matrix, DType type, const Use& use) {
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

/// Collects arrays and writes them as a checkpoint, shard by shard.
class Shards {
 public:
  Shards(const std::string& directory, DType type)
      : directory_(directory), folder_(checkpoint::begin(directory, 0)), type_(type) {}

  /// Memory for `elements` elements of an array from `first` on, valid until flush_if_large().
  char* add(const ArraySpec& spec, std::int64_t first, std::int64_t elements) {
    const auto [found, is_new] = numbers_.try_emplace(&spec, arrays_.size());
    if (is_new) {
      arrays_.push_back({&spec, buffer(spec.elements(), type_)});
      bytes_ += std::ssize(arrays_.back().data);
      missing_ += spec.elements();
    }
    missing_ -= elements;
    return arrays_[found->second].data.data() + first * size_of(type_);
  }

  /// Writes the collected arrays if they are large and complete.
  void flush_if_large() {
    if (bytes_ >= waiting_bytes && missing_ == 0) flush();
  }

  void commit(const checkpoint::RunState& state) {
    check(missing_ == 0, directory_, ": ", missing_, " elements are missing");
    flush();
    checkpoint::commit(directory_, state, summaries_, {});
  }

 private:
  struct Waiting {
    const ArraySpec* spec;
    Buffer data;
  };

  void flush() {
    if (arrays_.empty()) return;
    std::vector<checkpoint::SliceView> slices;
    for (const auto& [spec, data] : arrays_)
      slices.push_back({spec->name, type_, spec->shape, Extents(spec->shape.size(), 0), spec->shape,
                        data.data()});
    const auto number = static_cast<int>(summaries_.size());
    summaries_.push_back(checkpoint::write_shard(folder_, number, slices));
    arrays_.clear();
    numbers_.clear();
    bytes_ = 0;
  }

  std::string directory_;
  std::string folder_;
  DType type_;
  std::vector<Waiting> arrays_;
  std::map<const ArraySpec*, std::size_t> numbers_;
  std::int64_t bytes_ = 0;
  std::int64_t missing_ = 0;
  std::vector<checkpoint::ShardSummary> summaries_;
};

/// Reads and converts values of tensors. Infinities and NaNs are an error or, if allowed, give a
/// line per tensor.
class NumberReader {
 public:
  NumberReader(DType type, bool allow_nonfinite) : type_(type), allow_(allow_nonfinite) {}

  DType type() const { return type_; }
  void read(const StoredTensor& tensor, std::int64_t first, std::int64_t count, char* out) {
    const std::string what = text(tensor.file->path(), ": tensor '", tensor.info->name, "'");
    const DType stored = tensor.info->dtype().value();
    for_each_panel(count, 1, [&](std::int64_t begin, std::int64_t n) {
      raw_.resize(static_cast<std::size_t>(n * size_of(stored)));
      tensor.read((first + begin) * size_of(stored), n * size_of(stored), raw_.data());
      if (const Nonfinite found = nonfinite(stored, raw_.data(), n); found.count > 0) {
        const double number = number_at(stored, raw_.data(), found.first);
        const std::string which = std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
        check_usage(allow_, what, ": number ", first + begin + found.first, " is ", which,
                    "; repair the file, or give --allow-nonfinite to import it as it is");
        if (counts_[what]++ == 0)
          lines_.push_back(text(what, " holds numbers that are not finite, the first of them ",
                                which, " at ", first + begin + found.first));
      }
      convert_checked(what, stored, raw_.data(), type_, out + begin * size_of(type_), n);
    });
  }

  std::vector<std::string> take_lines() { return std::move(lines_); }

 private:
  DType type_;
  bool allow_;
  Buffer raw_;
  std::map<std::string, int> counts_;
  std::vector<std::string> lines_;
};

/// Reads the consecutive pieces of a tensor into their arrays.
void add_pieces(const StoredTensor& stored, const Tensor& tensor,
                const std::map<std::string, ArraySpec>& specs, NumberReader& numbers,
                Shards& shards) {
  const DType type = numbers.type();
  // A transposed matrix is [columns, rows] in the file.
  const std::int64_t columns = columns_of(tensor);
  const std::int64_t rows = stored.info->elements() / columns;
  Buffer all;
  if (tensor.transposed) {
    all = buffer(stored.info->elements(), type);
    numbers.read(stored, 0, stored.info->elements(), all.data());
  }
  std::int64_t row = 0;
  for (const Piece& piece : tensor.pieces) {
    const ArraySpec& spec = specs.at(piece.array);
    const Part part(spec, piece);
    const std::int64_t here = part.elements() / columns;
    char* out = shards.add(spec, part.first, part.elements());
    if (tensor.transposed)
      transpose_columns(all.data(), columns, rows, row, row + here, size_of(type), out);
    else
      numbers.read(stored, row, here, out);
    row += here;
  }
}

/// All tensors to write: the model's tensors, and copies of Copy::Use::none.
std::vector<Tensor> written_tensors(const Format& format, const deck::ModelConfig& model) {
  std::vector<Tensor> tensors = format.tensors(model);
  for (const Copy& copy : format.copies(model)) {
    if (copy.use == Copy::Use::tied) continue;
    Tensor twin = *std::ranges::find(tensors, copy.of, &Tensor::name);
    twin.name = copy.name;
    tensors.push_back(std::move(twin));
  }
  return tensors;
}

std::string names_of(const Tensor& tensor) {
  std::vector<std::string> arrays;
  for (const Piece& piece : tensor.pieces) arrays.push_back(piece.array);
  return text("'", join(arrays, "', '"), "'");
}

}  // namespace

DType weights_type(const checkpoint::Reader& reader, const deck::ModelConfig& model) {
  const auto specs = architecture::arrays_by_name(model);
  const checkpoint::ArrayInfo* first = nullptr;
  std::size_t found = 0;
  for (const checkpoint::ArrayInfo& array : reader.arrays()) {
    if (architecture::is_state(array.name)) continue;
    const auto spec = specs.find(array.name);
    check_usage(spec != specs.end(), reader.folder(), ": holds the array '", array.name,
                "', which the model of its ", checkpoint::deck_name, " does not have");
    check_usage(array.shape == spec->second.shape, reader.folder(), ": array '", array.name,
                "' is ", checkpoint::shape_text(array.shape), ", but the model of its ",
                checkpoint::deck_name, " has ", checkpoint::shape_text(spec->second.shape));
    if (first == nullptr) first = &array;
    check_usage(array.dtype == first->dtype && !safetensors_name(array.dtype).empty(),
                reader.folder(), ": array '", array.name, "' is ", name_of(array.dtype), ", but '",
                first->name, "' is ", name_of(first->dtype),
                "; expected floating-point numbers of one type");
    ++found;
  }
  for (const auto& [name, spec] : specs)
    check_usage(found == specs.size() || reader.has(name), reader.folder(), ": lacks the array '",
                name, "', which the model of its ", checkpoint::deck_name, " has");
  return first->dtype;
}

namespace {

std::vector<TensorPlan> plan_of(const std::vector<Tensor>& tensors, DType dtype) {
  std::vector<TensorPlan> plan;
  for (const Tensor& tensor : tensors) plan.push_back({tensor.name, dtype, tensor.shape});
  return plan;
}

/// Reads tensors from a checkpoint, merges adapters if `merger` is given, converts the tensors to
/// `dtype`, appends them to `out` and commits `out`.
template <class Out>
void write_tensors(const checkpoint::Reader& reader, const deck::ModelConfig& model, DType dtype,
                   const std::vector<Tensor>& tensors, const Merger* merger, Out& out) {
  const DType stored = weights_type(reader, model);
  const auto specs = architecture::arrays_by_name(model);
  Buffer matrix;
  Buffer converted;
  for (const Tensor& tensor : tensors) {
    matrix = buffer(checkpoint::volume(tensor.shape), stored);
    char* at = matrix.data();
    for (const Piece& piece : tensor.pieces) {
      const ArraySpec& spec = specs.at(piece.array);
      const Part part(spec, piece);
      reader.read_slice(spec.name, stored, spec.shape, part.offset, part.extent, at);
      if (merger != nullptr) merger->add_update(piece, at);
      at += part.elements() * size_of(stored);
    }
    const std::string what = text(reader.folder(), ": ", names_of(tensor));
    for_each_part(tensor, matrix, stored, [&](const char* numbers, std::int64_t count) {
      converted.resize(static_cast<std::size_t>(count * size_of(dtype)));
      convert_checked(what, stored, numbers, dtype, converted.data(), count);
      out.append(converted.data(), std::ssize(converted));
    });
  }
  out.commit();
}

}  // namespace

Exported export_weights(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                        DType dtype, const std::string& folder, std::int64_t shard_bytes) {
  const auto tensors = written_tensors(format_of(model.family), model);
  const DType stored = weights_type(reader, model);
  FolderWriter out(folder, plan_of(tensors, dtype), shard_bytes);
  std::optional<Merger> merger;
  if (model.adapter.present()) merger.emplace(reader, model, stored);
  write_tensors(reader, model, dtype, tensors, merger ? &*merger : nullptr, out);
  return {out.paths(), out.file_bytes()};
}

Exported export_adapters(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                         DType dtype, const std::string& folder) {
  const auto tensors = adapter_tensors(format_of(model.family), model);
  const std::string path = folder + "/" + adapter_weights_name;
  SafetensorsWriter out(path, plan_of(tensors, dtype));
  write_tensors(reader, model, dtype, tensors, nullptr, out);
  return {{path}, out.file_bytes()};
}

namespace {

/// The stored tensors of an adapter, in the order of `tensors`.
std::vector<StoredTensor> match_adapters(const SafetensorsFile& file,
                                         const std::vector<Tensor>& tensors) {
  Complaints complaints;
  std::vector<StoredTensor> stored;
  std::set<std::pair<std::string, Extents>> seen;
  for (const Tensor& tensor : tensors) {
    for (const Piece& piece : tensor.pieces)
      check_usage(seen.insert({piece.array, piece.place}).second, file.path(),
                  ": has an A for each of queries, keys and values, but the deck's adapters share "
                  "one; choose the targets attention.query and attention.key_value");
    const TensorInfo* info = file.find(tensor.name);
    stored.push_back({&file, info});
    if (info == nullptr)
      complaints.add(tensor.name, " is missing");
    else if (info->shape != tensor.shape || !info->dtype())
      complaints.add(tensor.name, " is ", info->type, " ", checkpoint::shape_text(info->shape),
                     ", expected floating-point numbers ", checkpoint::shape_text(tensor.shape));
  }
  for (const TensorInfo& info : file.tensors())
    if (std::ranges::find(tensors, info.name, &Tensor::name) == tensors.end())
      complaints.add(shortened(info.name), " is no tensor of these adapters");
  complaints.raise(text(file.path(), ": the tensors are not those of the deck's [adapter]"),
                   "change [adapter], or give the adapter that it describes");
  return stored;
}

}  // namespace

std::vector<std::string> import_weights(const TensorFolder& folder, const deck::ModelConfig& model,
                                        DType dtype, const std::string& directory,
                                        const checkpoint::RunState& state, bool allow_nonfinite,
                                        const SafetensorsFile* adapter) {
  const Format& format = format_of(model.family);
  auto stored = match(folder, format, model);
  const auto specs = architecture::arrays_by_name(model);
  auto tensors = format.tensors(model);
  if (adapter != nullptr) {
    const auto added = adapter_tensors(format, model);
    const auto in_file = match_adapters(*adapter, added);
    tensors.insert(tensors.end(), added.begin(), added.end());
    stored.insert(stored.end(), in_file.begin(), in_file.end());
  }
  Shards shards(directory, dtype);
  NumberReader numbers(dtype, allow_nonfinite);
  try {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      add_pieces(stored[i], tensors[i], specs, numbers, shards);
      shards.flush_if_large();
    }
    shards.commit(state);
  } catch (...) {
    checkpoint::abandon(directory, 0);
    throw;
  }
  return numbers.take_lines();
}

}  // namespace trireme::hugging_face
