// Serializes the summary of a shard for the rank that commits. Parsing checks every count against
// the bytes that follow.
#include <trireme/base/check.hpp>
#include <trireme/checkpoint/shard.hpp>

#include <cstring>
#include <type_traits>

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t most_items = 1 << 28;

/// Values in sequence, little endian like the machines that exchange them.
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
  /// A number of items with at least `item_bytes` bytes each. The remaining bytes must hold them.
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
