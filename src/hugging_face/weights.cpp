// Export and import of weights, tensor by tensor, with conversion and reordering in panels. For an
// import, the stored tensors are first matched with the model's tensors by name.
#include <trireme/hugging_face/weights.hpp>

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/fp8.hpp>
#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/hugging_face/axis_order.hpp>
#include <trireme/hugging_face/convert.hpp>
#include <trireme/hugging_face/folder_writer.hpp>
#include <trireme/hugging_face/mxfp4.hpp>
#include <trireme/hugging_face/peft.hpp>
#include <trireme/hugging_face/upcycle.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
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
  if (format.further_token.empty()) return stored;
  std::vector<std::string> left_out;
  for (const auto& [name, tensor] : stored)
    if (name.ends_with("." + format.further_token))
      left_out.push_back(name.substr(0, name.size() - format.further_token.size()));
  if (model.modules() > 0)
    for (const Tensor& wanted : format.tensors(model))
      std::erase_if(left_out, [&](const auto& layer) { return wanted.name.starts_with(layer); });
  std::erase_if(stored, [&](const auto& entry) {
    return std::ranges::any_of(left_out,
                               [&](const auto& layer) { return entry.first.starts_with(layer); });
  });
  return stored;
}

bool is_alike(const TensorInfo& a, const TensorInfo& b) {
  return a.type == b.type && a.shape == b.shape;
}

/// Whether two tensors of one type and shape have the same bytes.
bool has_same_bytes(const StoredTensor& a, const StoredTensor& b) {
  constexpr std::int64_t most = 1 << 20;
  std::vector<char> left(static_cast<std::size_t>(std::min(most, a.info->bytes)));
  std::vector<char> right(left.size());
  for (std::int64_t at = 0; at < a.info->bytes; at += most) {
    const std::int64_t bytes = std::min(most, a.info->bytes - at);
    a.read(at, bytes, left.data());
    b.read(at, bytes, right.data());
    if (std::memcmp(left.data(), right.data(), static_cast<std::size_t>(bytes)) != 0) return false;
  }
  return true;
}

void expect_copy(const StoredTensor& copy, const StoredTensor& of, Complaints& complaints) {
  const TensorInfo& a = *copy.info;
  const TensorInfo& b = *of.info;
  if (!is_alike(a, b))
    complaints.add(a.name, " is ", described(a), ", but ", b.name, " is ", described(b),
                   ", and they are tied");
  else if (!has_same_bytes(copy, of))
    complaints.add(a.name, " is not equal to ", b.name, ", but they are tied; ",
                   "if they are not, set \"tie_word_embeddings\": false in config.json");
}

/// The blocks and scales of a tensor in MXFP4, removed from `stored`. std::nullopt if there are no
/// blocks.
std::optional<StoredValues> take_packed(const Tensor& wanted, Stored& stored,
                                        Complaints& complaints) {
  const auto blocks = stored.find(wanted.name + "_blocks");
  if (wanted.packed_axes.empty() || blocks == stored.end()) return std::nullopt;
  const std::int64_t row = wanted.extents[wanted.packed_axes.back()];
  const std::int64_t matrices = wanted.extents[wanted.packed_axes.front()];
  Extents shape{matrices, checkpoint::volume(wanted.extents) / (matrices * row), row / mxfp4_block};
  const auto expect = [&](const TensorInfo& info, const Extents& expected) {
    if (info.type != "U8" || info.shape != expected)
      complaints.add(info.name, " is ", described(info), ", expected U8 ",
                     checkpoint::shape_text(expected));
  };
  const auto scales = stored.find(wanted.name + "_scales");
  if (scales == stored.end()) complaints.add(wanted.name, "_scales is missing");
  StoredValues out{blocks->second, scales == stored.end() ? blocks->second : scales->second};
  if (row % mxfp4_block != 0) {
    complaints.add(out.values.info->name, " is in MXFP4, but the model has rows of ", row,
                   " values, expected a multiple of ", mxfp4_block);
  } else {
    if (scales != stored.end()) expect(*out.scales.info, shape);
    shape.push_back(mxfp4_block / 2);
    expect(*out.values.info, shape);
  }
  stored.erase(blocks);
  if (scales != stored.end()) stored.erase(scales);
  return out;
}

}  // namespace

void find_own_output(ModelFile& file, const TensorFolder& folder) {
  const std::string& name = file.format->own_output;
  if (name.empty() || !file.model.tied_embeddings) return;
  Complaints unused;  // match() reports them
  const Stored stored = stored_tensors(folder, *file.format, file.model, unused);
  const auto copies = file.format->copies(file.model);
  const auto copy = std::ranges::find(copies, name, &Copy::name);
  const auto output = stored.find(name), table = stored.find(copy->of);
  if (output == stored.end() || table == stored.end()) return;
  if (is_alike(*output->second.info, *table->second.info))
    file.model.tied_embeddings = has_same_bytes(output->second, table->second);
}

std::vector<StoredValues> match(const TensorFolder& folder, const Format& format,
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
  std::vector<StoredValues> matched;
  for (const Tensor& wanted : format.tensors(model)) {
    const auto found = stored.find(wanted.name);
    if (found == stored.end()) {
      if (const auto packed = take_packed(wanted, stored, complaints))
        matched.push_back(*packed);
      else
        complaints.add(wanted.name, " is missing");
      continue;
    }
    const TensorInfo& info = *found->second.info;
    if (info.shape != wanted.shape || !info.dtype())
      complaints.add(info.name, " is ", described(info), ", expected F64, F32, BF16 or F16 ",
                     checkpoint::shape_text(wanted.shape));
    matched.push_back({found->second});
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

/// Number of values that are read, converted and reordered at a time: 4 MiB of fp64.
constexpr std::int64_t panel_elements = 1 << 19;
/// Size of the collected arrays at which they are written as a shard.
constexpr std::int64_t waiting_bytes = 64 << 20;

Buffer buffer(std::int64_t elements, DType type) {
  return Buffer(static_cast<std::size_t>(elements * size_of(type)));
}

/// Converts `count` values to another type. UsageError that begins with `what` if a finite value is
/// too large for the type.
void convert_checked(const std::string& what, DType from, const void* in, DType to, void* out,
                     std::int64_t count) {
  const auto lost = convert(from, in, to, out, count);
  check_usage(!lost, what, ": contains ", lost ? number_at(from, in, *lost) : 0.0,
              ", which is too large for ", name_of(to), "; choose a type with a larger range");
}

AxisOrder order_of(const Tensor& tensor, bool packed = false) {
  return {tensor.extents.empty() ? tensor.shape : tensor.extents,
          packed ? tensor.packed_axes : tensor.axes};
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
  /// Values [first, first + count) in the order of the file, valid until the next call.
  const char* read(const StoredValues& tensor, std::int64_t first, std::int64_t count) {
    const TensorInfo& info = *tensor.values.info;
    const std::string what = text(tensor.values.file->path(), ": tensor '", info.name, "'");
    const DType stored = tensor.packed() ? DType::fp64 : info.dtype().value();
    raw_.resize(static_cast<std::size_t>(count * size_of(stored)));
    if (tensor.packed())
      unpack(tensor, first, count);
    else
      tensor.values.read(first * size_of(stored), std::ssize(raw_), raw_.data());
    if (const Nonfinite found = nonfinite(stored, raw_.data(), count); found.count > 0) {
      const double number = number_at(stored, raw_.data(), found.first);
      const std::string which = std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
      check_usage(allow_, what, ": number ", first + found.first, " is ", which,
                  "; repair the file, or give --allow-nonfinite to import it as it is");
      if (counts_[what]++ == 0)
        lines_.push_back(text(what, " holds numbers that are not finite, the first of them ", which,
                              " at ", first + found.first));
    }
    converted_.resize(static_cast<std::size_t>(count * size_of(type_)));
    convert_checked(what, stored, raw_.data(), type_, converted_.data(), count);
    return converted_.data();
  }

  std::vector<std::string> take_lines() { return std::move(lines_); }

 private:
  /// Decodes values of MXFP4 into raw_, as double.
  void unpack(const StoredValues& tensor, std::int64_t first, std::int64_t count) {
    const auto bytes = [&](const StoredTensor& from, std::int64_t unit) {
      const std::int64_t begin = first / unit, end = (first + count + unit - 1) / unit;
      std::vector<std::uint8_t> out(static_cast<std::size_t>(end - begin));
      from.read(begin, end - begin, out.data());
      return out;
    };
    const auto codes = bytes(tensor.values, 2), scales = bytes(tensor.scales, mxfp4_block);
    std::vector<double> numbers(static_cast<std::size_t>(count));
    decode_mxfp4(codes.data(), scales.data(), first, count, numbers.data());
    std::memcpy(raw_.data(), numbers.data(), raw_.size());
  }

  DType type_;
  bool allow_;
  Buffer raw_;
  Buffer converted_;
  std::map<std::string, int> counts_;
  std::vector<std::string> lines_;
};

/// Reads a tensor into the arrays of its pieces.
void add_pieces(const StoredValues& stored, const Tensor& tensor,
                const std::map<std::string, ArraySpec>& specs, NumberReader& numbers,
                Shards& shards) {
  const AxisOrder order = order_of(tensor, stored.packed());
  struct Rows {
    char* data;
    std::int64_t first;
    std::int64_t last;
  };
  std::vector<Rows> pieces;
  std::int64_t row = 0;
  for (const Piece& piece : tensor.pieces) {
    const ArraySpec& spec = specs.at(piece.array);
    const Part part(spec, piece);
    const std::int64_t last = row + part.elements() / order.row_elements();
    pieces.push_back({shards.add(spec, part.first, part.elements()), row, last});
    row = last;
  }
  check(row == order.rows(), tensor.name, ": its pieces have ", row, " rows instead of ",
        order.rows());
  for (const AxisOrder::Panel& panel : order.panels(panel_elements)) {
    const char* values = numbers.read(stored, panel.first, panel.count);
    for (const Rows& piece : pieces)
      order.to_memory(panel, values, piece.first, piece.last, size_of(numbers.type()), piece.data);
  }
}

/// All tensors to write: the model's tensors, copies of Copy::Use::none, and unused tensors.
std::vector<Tensor> written_tensors(const Format& format, const deck::ModelConfig& model) {
  std::vector<Tensor> tensors = format.tensors(model);
  for (const Copy& copy : format.copies(model)) {
    if (copy.use == Copy::Use::tied) continue;
    Tensor twin = *std::ranges::find(tensors, copy.of, &Tensor::name);
    twin.name = copy.name;
    tensors.push_back(std::move(twin));
  }
  if (format.unused != nullptr)
    std::ranges::move(format.unused(model), std::back_inserter(tensors));
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

/// Type of a tensor in an export with values of type `dtype`.
DType exported_type(const Tensor& tensor, DType dtype) {
  return tensor.wide && size_of(dtype) < size_of(DType::fp32) ? DType::fp32 : dtype;
}

std::vector<TensorPlan> plan_of(const std::vector<Tensor>& tensors, DType dtype) {
  std::vector<TensorPlan> plan;
  for (const Tensor& tensor : tensors)
    plan.push_back({tensor.name, exported_type(tensor, dtype), tensor.shape});
  return plan;
}

/// Reads tensors from a checkpoint, merges adapters if `merger` is given, converts the tensors to
/// exported_type(), appends them to `out` and commits `out`.
template <class Out>
void write_tensors(const checkpoint::Reader& reader, const deck::ModelConfig& model, DType dtype,
                   const std::vector<Tensor>& tensors, const Merger* merger, Out& out) {
  const DType stored = weights_type(reader, model);
  const auto specs = architecture::arrays_by_name(model);
  Buffer matrix;
  Buffer panel;
  Buffer converted;
  for (const Tensor& tensor : tensors) {
    matrix = buffer(checkpoint::volume(tensor.shape), stored);
    if (tensor.pieces.empty()) {
      const std::vector<double> same(matrix.size() / static_cast<std::size_t>(size_of(stored)),
                                     tensor.constant);
      convert(DType::fp64, same.data(), stored, matrix.data(), std::ssize(same));
    }
    char* at = matrix.data();
    for (const Piece& piece : tensor.pieces) {
      const ArraySpec& spec = specs.at(piece.array);
      const Part part(spec, piece);
      reader.read_slice(spec.name, stored, spec.shape, part.offset, part.extent, at);
      if (merger != nullptr) merger->add_update(piece, at);
      at += part.elements() * size_of(stored);
    }
    const std::string what = text(reader.folder(), ": ", names_of(tensor));
    const DType type = exported_type(tensor, dtype);
    const AxisOrder order = order_of(tensor);
    for (const AxisOrder::Panel& next : order.panels(panel_elements)) {
      panel.resize(static_cast<std::size_t>(next.count * size_of(stored)));
      order.to_file(matrix.data(), 0, order.rows(), size_of(stored), next, panel.data());
      converted.resize(static_cast<std::size_t>(next.count * size_of(type)));
      convert_checked(what, stored, panel.data(), type, converted.data(), next.count);
      out.append(converted.data(), std::ssize(converted));
    }
  }
  out.commit();
}

}  // namespace

Exported export_weights(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                        DType dtype, const std::string& folder, std::int64_t shard_bytes) {
  const auto tensors = written_tensors(format_of(model), model);
  const DType stored = weights_type(reader, model);
  FolderWriter out(folder, plan_of(tensors, dtype), shard_bytes);
  std::optional<Merger> merger;
  if (model.adapter.present()) merger.emplace(reader, model, stored);
  write_tensors(reader, model, dtype, tensors, merger ? &*merger : nullptr, out);
  return {out.paths(), out.file_bytes()};
}

Exported export_adapters(const checkpoint::Reader& reader, const deck::ModelConfig& model,
                         DType dtype, const std::string& folder) {
  const auto tensors = adapter_tensors(format_of(model), model);
  const std::string path = folder + "/" + adapter_weights_name;
  SafetensorsWriter out(path, plan_of(tensors, dtype));
  write_tensors(reader, model, dtype, tensors, nullptr, out);
  return {{path}, out.file_bytes()};
}

namespace {

/// The stored tensors of an adapter, in the order of `tensors`. Files of other versions of
/// transformers may have other names of the model's modules.
std::vector<StoredValues> match_adapters(const SafetensorsFile& file, const Format& format,
                                         const deck::ModelConfig& model,
                                         const std::vector<Tensor>& tensors) {
  Complaints complaints;
  std::map<std::string, const TensorInfo*> named;
  for (const TensorInfo& info : file.tensors())
    if (const std::string name = adapter_name_today(info.name, format, model);
        !name.empty() && !named.emplace(name, &info).second)
      complaints.add(shortened(info.name), " is there under two names");
  std::vector<StoredValues> stored;
  std::set<std::pair<std::string, Extents>> seen;
  for (const Tensor& tensor : tensors) {
    for (const Piece& piece : tensor.pieces)
      check_usage(seen.insert({piece.array, piece.place}).second, file.path(),
                  ": has an A for each of queries, keys and values, but the deck's adapters share "
                  "one; choose the targets attention.query and attention.key_value");
    const auto found = named.find(tensor.name);
    const TensorInfo* info = found == named.end() ? nullptr : found->second;
    stored.push_back({{&file, info}});
    if (info == nullptr)
      complaints.add(tensor.name, " is missing");
    else if (info->shape != tensor.shape || !info->dtype())
      complaints.add(tensor.name, " is ", info->type, " ", checkpoint::shape_text(info->shape),
                     ", expected floating-point numbers ", checkpoint::shape_text(tensor.shape));
  }
  for (const auto& [name, info] : named)
    if (std::ranges::find(tensors, name, &Tensor::name) == tensors.end())
      complaints.add(shortened(info->name), " is no tensor of these adapters");
  complaints.raise(text(file.path(), ": the tensors are not those of the deck's [adapter]"),
                   "change [adapter], or give the adapter that it describes");
  return stored;
}

/// Adds the initial weights of all routers.
void add_routers(const deck::ModelConfig& model, const std::map<std::string, ArraySpec>& specs,
                 DType dtype, std::uint64_t seed, Shards& shards) {
  const architecture::Architecture architecture = architecture::describe(model);
  for (std::size_t number = 0; number < architecture.arrays.size(); ++number) {
    const std::string& name = architecture.arrays[number].name;
    if (!name.ends_with(".experts.router")) continue;
    const ArraySpec& spec = specs.at(name);
    const auto values = router_weights(spec, static_cast<std::uint32_t>(number), seed);
    convert(DType::fp64, values.data(), dtype, shards.add(spec, 0, spec.elements()),
            spec.elements());
    shards.flush_if_large();
  }
}

/// Adds the loads of experts before the first step, which no file has.
void add_loads(const std::map<std::string, ArraySpec>& specs, DType dtype, Shards& shards) {
  for (const auto& [name, spec] : specs) {
    if (!spec.is_load) continue;
    const std::vector<double> equal(static_cast<std::size_t>(spec.elements()), 1.0);
    convert(DType::fp64, equal.data(), dtype, shards.add(spec, 0, spec.elements()),
            spec.elements());
  }
}

}  // namespace

std::vector<std::string> import_weights(const TensorFolder& folder, const deck::ModelConfig& model,
                                        DType dtype, const std::string& directory,
                                        const checkpoint::RunState& state, bool allow_nonfinite,
                                        const SafetensorsFile* adapter,
                                        const deck::ModelConfig* original, std::uint64_t seed) {
  const deck::ModelConfig& in_file = original != nullptr ? *original : model;
  const Format& format = format_of(in_file);
  auto stored = match(folder, format, in_file);
  const auto specs = architecture::arrays_by_name(model);
  auto tensors = format.tensors(in_file);
  if (adapter != nullptr) {
    const auto added = adapter_tensors(format, model);
    const auto of_adapter = match_adapters(*adapter, format, model, added);
    tensors.insert(tensors.end(), added.begin(), added.end());
    stored.insert(stored.end(), of_adapter.begin(), of_adapter.end());
  }
  Shards shards(directory, dtype);
  NumberReader numbers(dtype, allow_nonfinite);
  try {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      for (const Tensor& tensor :
           original != nullptr ? copies_for_experts(tensors[i], model) : std::vector{tensors[i]})
        add_pieces(stored[i], tensor, specs, numbers, shards);
      shards.flush_if_large();
    }
    if (original != nullptr) add_routers(model, specs, dtype, seed, shards);
    add_loads(specs, dtype, shards);
    shards.commit(state);
  } catch (...) {
    checkpoint::abandon(directory, 0);
    throw;
  }
  return numbers.take_lines();
}

}  // namespace trireme::hugging_face
