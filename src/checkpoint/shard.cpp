// Writes one shard: HDF5 creates the file and its datasets, then the data of each slice are hashed
// and written to their offsets block by block.
#include <trireme/checkpoint/shard.hpp>

#include <trireme/base/check.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/hdf5_file.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

namespace trireme::checkpoint {
namespace {

// Space for HDF5's metadata in a shard without datasets, and for each dataset.
constexpr std::int64_t structure_bytes = 64 << 10;
constexpr std::int64_t structure_bytes_per_dataset = 1024;
// Bytes per write: few enough to be still in the cache after hashing.
constexpr std::int64_t written_bytes = 512 << 10;

void expect_names(std::span<const SliceView> slices) {
  for (const auto& slice : slices) {
    const std::string bounded = "/" + slice.name + "/";
    check(bounded.find("//") == std::string::npos && bounded.find("/./") == std::string::npos,
          "array name '", slice.name, "': expected words separated by /");
    expect_within(text("array '", slice.name, "'"), {slice.offset, slice.extent}, slice.shape);
  }
}

/// Creates the datasets with HDF5, and sets the file offsets of the slices.
void lay_out(io::AtomicFile& file, std::vector<SliceSummary>& slices) {
  std::vector<std::string> arrays;
  for (const auto& slice : slices) arrays.push_back(slice.name);
  const auto datasets = dataset_names(arrays);
  const auto count = static_cast<std::int64_t>(slices.size());
  auto hdf5 = io::Hdf5File::create(file.temporary_path(), 0,
                                   structure_bytes + count * structure_bytes_per_dataset,
                                   io::direct_alignment);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    SliceSummary& slice = slices[i];
    const auto dataset = hdf5.create_dataset(datasets[i], slice.dtype, slice.slab.extent);
    slice.file_offset = dataset.file_offset();
    check(slice.file_offset >= 0, file.path(), ": HDF5 did not allocate dataset '", datasets[i],
          "'");
  }
  hdf5.close_into(file);
}

/// Bytes [begin, begin + bytes) of a slice, copied to `buffer` unless they are in host memory.
const char* fetch(const SliceView& slice, std::int64_t begin, std::int64_t bytes,
                  std::vector<char>& buffer) {
  if (slice.data != nullptr) return static_cast<const char*>(slice.data) + begin;
  buffer.resize(static_cast<std::size_t>(written_bytes));
  slice.copy(begin, bytes, buffer.data());
  return buffer.data();
}

/// Writes the bytes of one dataset and returns the digests of its blocks.
class BlockWriter {
 public:
  BlockWriter(io::AtomicFile& file, Cache cache) : file_(file), cache_(cache) {}

  std::vector<Digest> write(std::int64_t file_offset, const SliceView& slice,
                            const std::function<void()>& progress) {
    std::vector<Digest> blocks;
    for (std::int64_t begin = 0; begin < slice.bytes(); begin += block_bytes) {
      blocks.push_back(
          write_block(file_offset, slice, begin, std::min(slice.bytes(), begin + block_bytes)));
      if (progress) progress();
    }
    return blocks;
  }

 private:
  Digest write_block(std::int64_t file_offset, const SliceView& slice, std::int64_t begin,
                     std::int64_t end) {
    sum_.reset();
    std::int64_t written = begin;
    if (cache_ == Cache::bypassed && slice.data != nullptr) {
      const auto* data = static_cast<const char*>(slice.data) + begin;
      const std::int64_t pages = (end - begin) / io::direct_alignment * io::direct_alignment;
      if (pages > 0 &&
          file_.write_direct(file_offset + begin, data, static_cast<std::size_t>(pages))) {
        sum_.update(data, static_cast<std::size_t>(pages));
        written += pages;
      }
    }
    for (std::int64_t from = written; from < end; from += written_bytes) {
      const std::int64_t count = std::min(written_bytes, end - from);
      const char* data = fetch(slice, from, count, buffer_);
      sum_.update(data, static_cast<std::size_t>(count));
      file_.write(file_offset + from, data, static_cast<std::size_t>(count));
    }
    return sum_.digest();
  }

  io::AtomicFile& file_;
  Cache cache_;
  Checksum sum_;
  std::vector<char> buffer_;
};

}  // namespace

std::string shard_name(int number) {
  const std::string digits = text(number);
  return text("shard_", std::string(6 - std::min<std::size_t>(6, digits.size()), '0'), digits,
              ".h5");
}

std::vector<std::string> dataset_names(const std::vector<std::string>& arrays) {
  std::map<std::string_view, int> times;
  std::vector<std::string> names;
  for (const auto& array : arrays) {
    const int before = times[array]++;
    names.push_back(before == 0 ? array : text(array, "@", before));
  }
  return names;
}

ShardSummary write_shard(const std::string& folder, int number, std::span<const SliceView> slices,
                         const std::function<void()>& progress, Cache cache) {
  expect_names(slices);
  ShardSummary shard{shard_name(number), 0, {}, {}};
  std::vector<SliceSummary> empty;
  std::vector<const SliceView*> sources;
  std::int64_t bytes = structure_bytes;
  for (const auto& slice : slices) {
    SliceSummary summary{slice.name, slice.dtype, slice.shape, {slice.offset, slice.extent}, 0, {}};
    bytes += summary.bytes() + structure_bytes_per_dataset + io::direct_alignment;
    if (summary.bytes() == 0) {
      empty.push_back(std::move(summary));
      continue;
    }
    shard.slices.push_back(std::move(summary));
    sources.push_back(&slice);
  }
  io::AtomicFile file(folder + "/" + shard.file);
  file.probe_space(bytes);  // a full disk is found before any byte is written
  lay_out(file, shard.slices);
  std::vector<Region> regions;
  BlockWriter writer(file, cache);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    SliceSummary& slice = shard.slices[i];
    regions.push_back({slice.file_offset, slice.bytes()});
    slice.blocks = writer.write(slice.file_offset, *sources[i], progress);
  }
  const io::InputFile written(file.temporary_path());
  shard.bytes = written.size();
  shard.structure = structure_digest(written, regions);
  file.commit();
  std::ranges::move(empty, std::back_inserter(shard.slices));
  return shard;
}

std::vector<Region> ordered(const std::string& file, std::int64_t file_bytes,
                            std::vector<Region> regions) {
  std::ranges::sort(regions, {}, &Region::begin);
  std::int64_t end = 0;
  for (const auto& [begin, bytes] : regions) {
    check(begin >= end && bytes > 0 && bytes <= file_bytes && begin <= file_bytes - bytes, file,
          ": ", bytes, " bytes of a dataset begin at byte ", begin, "; they must be in bytes ", end,
          " to ", file_bytes, " and not empty");
    end = begin + bytes;
  }
  return regions;
}

Digest structure_digest(const io::InputFile& file, std::vector<Region> storage) {
  Checksum sum;
  std::int64_t at = 0;
  const auto until = [&](std::int64_t end) {
    file.for_each_block(at, end,
                        [&](const std::byte* data, std::size_t bytes) { sum.update(data, bytes); });
  };
  for (const auto& [begin, bytes] : ordered(file.path(), file.size(), std::move(storage))) {
    until(begin);
    at = begin + bytes;
  }
  until(file.size());
  return sum.digest();
}

namespace {

constexpr std::int64_t most_items = 1 << 28;

/// Writes values in sequence, in the machine's byte order.
class Packer {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(const std::string& value) {
    put(std::ssize(value));
    out_ += value;
  }
  void put_extents(const Extents& values) {
    put(std::ssize(values));
    for (const auto value : values) put(value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string get_text() { return std::string(take(static_cast<std::size_t>(get_count(1)))); }
  Extents get_extents() {
    Extents values(static_cast<std::size_t>(get_count(sizeof(std::int64_t))));
    for (auto& value : values) value = get<std::int64_t>();
    return values;
  }
  /// Reads a count. Error unless the remaining bytes can hold so many items of `item_bytes` bytes.
  std::int64_t get_count(std::size_t item_bytes) {
    const auto count = get<std::int64_t>();
    check(count >= 0 && count <= most_items &&
              static_cast<std::size_t>(count) <= rest_.size() / item_bytes,
          "the summary of a shard is damaged: ", count, " items in ", rest_.size(), " bytes");
    return count;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view take(std::size_t bytes) {
    check(bytes <= rest_.size(), "the summary of a shard is truncated");
    const auto part = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return part;
  }
  std::string_view rest_;
};

}  // namespace

std::string pack(const ShardSummary& summary) {
  Packer out;
  out.put_text(summary.file);
  out.put(summary.bytes);
  out.put(summary.structure);
  out.put(std::ssize(summary.slices));
  for (const auto& slice : summary.slices) {
    out.put_text(slice.name);
    out.put(slice.dtype);
    out.put_extents(slice.shape);
    out.put_extents(slice.slab.offset);
    out.put_extents(slice.slab.extent);
    out.put(slice.file_offset);
    out.put(std::ssize(slice.blocks));
    for (const auto& block : slice.blocks) out.put(block);
  }
  return out.take();
}

ShardSummary parse_summary(std::string_view bytes) {
  Unpacker in(bytes);
  ShardSummary summary;
  summary.file = in.get_text();
  summary.bytes = in.get<std::int64_t>();
  summary.structure = in.get<Digest>();
  summary.slices.resize(static_cast<std::size_t>(in.get_count(1)));
  for (auto& slice : summary.slices) {
    slice.name = in.get_text();
    const auto dtype = in.get<std::uint8_t>();
    check(dtype < names<DType>().size(), "the summary of a shard has the unknown type ", +dtype);
    slice.dtype = static_cast<DType>(dtype);
    slice.shape = in.get_extents();
    slice.slab.offset = in.get_extents();
    slice.slab.extent = in.get_extents();
    slice.file_offset = in.get<std::int64_t>();
    slice.blocks.resize(static_cast<std::size_t>(in.get_count(sizeof(Digest))));
    for (auto& block : slice.blocks) block = in.get<Digest>();
  }
  check(in.done(), "the summary of a shard has trailing bytes");
  return summary;
}

}  // namespace trireme::checkpoint
