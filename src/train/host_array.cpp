#include <trireme/base/check.hpp>
#include <trireme/train/host_array.hpp>

#include <cstring>

namespace trireme::train {
namespace {

/// Slices are hyperslabs that leave at most one axis incomplete: runs of equal length at equal
/// distances.
void place(HostArray& whole, const HostSlice& slice) {
  const std::size_t rank = whole.shape.size();
  std::size_t axis = 0;
  while (axis + 1 < rank && slice.extent[axis] == whole.shape[axis]) ++axis;
  std::int64_t outer = 1;
  std::int64_t inner = size_of(whole.dtype);
  for (std::size_t a = 0; a < rank; ++a) {
    if (a < axis) outer *= whole.shape[a];
    if (a > axis) inner *= whole.shape[a];
    check(a <= axis || slice.extent[a] == whole.shape[a], "a slice of ", whole.name,
          " is cut along two axes");
  }
  const std::int64_t run = slice.extent[axis] * inner;
  check(outer * run == static_cast<std::int64_t>(slice.bytes.size()), "a slice of ", whole.name,
        " has ", slice.bytes.size(), " bytes, expected ", outer * run);
  if (run == 0) return;
  for (std::int64_t o = 0; o < outer; ++o)
    std::memcpy(whole.bytes.data() + (o * whole.shape[axis] + slice.offset[axis]) * inner,
                slice.bytes.data() + o * run, static_cast<std::size_t>(run));
}

std::string pack(const HostSlice& slice) {
  if (slice.bytes.empty()) return {};
  const std::size_t head = slice.offset.size() * sizeof(std::int64_t);
  std::string out(2 * head + slice.bytes.size(), '\0');
  std::memcpy(out.data(), slice.offset.data(), head);
  std::memcpy(out.data() + head, slice.extent.data(), head);
  std::memcpy(out.data() + 2 * head, slice.bytes.data(), slice.bytes.size());
  return out;
}

HostSlice unpack(const std::string& packed, std::size_t rank) {
  const std::size_t head = rank * sizeof(std::int64_t);
  HostSlice slice{std::vector<std::int64_t>(rank), std::vector<std::int64_t>(rank),
                  std::vector<std::byte>(packed.size() - 2 * head)};
  std::memcpy(slice.offset.data(), packed.data(), head);
  std::memcpy(slice.extent.data(), packed.data() + head, head);
  std::memcpy(slice.bytes.data(), packed.data() + 2 * head, slice.bytes.size());
  return slice;
}

}  // namespace

void gather_slices(grid::Communicator& group, HostArray& whole, const HostSlice& mine) {
  // In rounds of a piece from each rank: a message counts its bytes in 31 bits.
  const std::string all = pack(mine);
  const auto longest = group.all_reduce<std::int64_t>(static_cast<std::int64_t>(all.size()),
                                                      grid::Reduction::maximum, "a slice's size");
  const std::size_t piece = (std::size_t{1} << 30) / static_cast<std::size_t>(group.size());
  std::vector<std::string> packed(group.rank() == 0 ? static_cast<std::size_t>(group.size()) : 0);
  for (std::size_t begin = 0; begin < static_cast<std::size_t>(longest); begin += piece) {
    const std::string part = begin < all.size() ? all.substr(begin, piece) : std::string();
    const auto parts = group.gather(part, 0, "a checkpoint's array");
    for (std::size_t r = 0; r < packed.size(); ++r) packed[r] += parts[r];
  }
  if (group.rank() != 0) return;
  std::int64_t bytes = size_of(whole.dtype);
  for (const std::int64_t extent : whole.shape) bytes *= extent;
  whole.bytes.resize(static_cast<std::size_t>(bytes));
  std::int64_t filled = 0;
  for (const std::string& p : packed) {
    if (p.empty()) continue;
    const HostSlice slice = unpack(p, whole.shape.size());
    place(whole, slice);
    filled += static_cast<std::int64_t>(slice.bytes.size());
  }
  check(filled == bytes, "the ranks hold ", filled, " bytes of ", whole.name, ", expected ", bytes);
}

}  // namespace trireme::train
