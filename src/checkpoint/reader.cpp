// Reads slices of arrays across the shards of a checkpoint. A block of a dataset is verified when
// it is read for the first time; the last partly needed block stays in a buffer.
#include <trireme/checkpoint/reader.hpp>

#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/verify.hpp>

#include <algorithm>
#include <cstring>

namespace trireme::checkpoint {
namespace {

constexpr std::size_t open_files = 128;
constexpr std::int64_t small_bytes = 64 << 10;  // smaller parts are copied from a whole block

}  // namespace

Reader::Reader(const std::string& folder, Opening opening)
    : folder_(folder),
      manifest_(read_manifest(folder)),
      places_(manifest_.arrays.size()),
      structure_verified_(manifest_.shards.size(), opening == Opening::outline) {
  if (opening == Opening::outline) verify_outline(folder, manifest_);
  state_ = {manifest_.step,   manifest_.samples, read_member(folder, manifest_, deck_name),
            manifest_.layout, manifest_.values,  {},
            manifest_.starts};
  for (std::size_t a = 0; a < manifest_.arrays.size(); ++a)
    numbers_.emplace(manifest_.arrays[a].name, a);
  for (std::size_t shard = 0; shard < manifest_.shards.size(); ++shard)
    for (std::size_t slice = 0; slice < manifest_.shards[shard].slices.size(); ++slice)
      places_[manifest_.shards[shard].slices[slice].array].push_back({shard, slice});
}

Files Reader::kept_files() const {
  Files files;
  for (const FileInfo& info : manifest_.files) {
    if (info.name == deck_name || info.name == index_name) continue;
    files[info.name] = read_member(folder_, manifest_, info.name);
  }
  return files;
}

const io::InputFile& Reader::file(std::size_t shard) const {
  if (const auto found = files_.find(shard); found != files_.end()) return found->second;
  if (files_.size() >= open_files) files_.clear();  // a job may often open only 1024 files
  const ShardInfo& info = manifest_.shards[shard];
  if (!structure_verified_[shard]) verify_structure(folder_, manifest_, info);
  structure_verified_[shard] = true;
  return files_.emplace(shard, open_member(folder_ + "/" + info.name)).first->second;
}

void Reader::fetch(Place place, std::int64_t begin, char* out, std::int64_t bytes) const {
  const SliceInfo& slice = manifest_.shards[place.shard].slices[place.slice];
  file(place.shard).read(slice.file_offset + begin, out, static_cast<std::size_t>(bytes));
  bytes_read_ += bytes;
}

bool Reader::is_verified(const Loaded& block) const {
  const auto known = block_verified_.find(block.place);
  return known != block_verified_.end() && known->second[block.number];
}

/// Reads a whole block, and verifies it the first time.
void Reader::fetch_block(const Loaded& block, char* out, std::int64_t bytes) const {
  const auto& [place, number] = block;
  if (is_verified(block)) {
    fetch(place, static_cast<std::int64_t>(number) * block_bytes, out, bytes);
    return;
  }
  const ShardInfo& shard = manifest_.shards[place.shard];
  read_block(file(place.shard), manifest_, shard, place.slice, number, out);
  bytes_read_ += bytes;
  bytes_verified_ += bytes;
  auto& verified = block_verified_[place];
  verified.resize(shard.slices[place.slice].blocks.size());
  verified[number] = true;
}

/// Copies bytes [begin, end) of a slice's dataset, block by block. Whole blocks and large parts of
/// verified blocks go directly to `out`, other parts through the buffer.
void Reader::copy_bytes(Place place, std::int64_t begin, std::int64_t end, char* out) const {
  const std::int64_t bytes =
      manifest_.slice_bytes(manifest_.shards[place.shard].slices[place.slice]);
  while (begin < end) {
    const std::int64_t number = begin / block_bytes;
    const std::int64_t first = number * block_bytes;
    const std::int64_t last = std::min(first + block_bytes, bytes);
    const std::int64_t until = std::min(last, end);
    const Loaded wanted{place, static_cast<std::size_t>(number)};
    if (loaded_ == wanted) {
      std::memcpy(out, buffer_.data() + (begin - first), static_cast<std::size_t>(until - begin));
    } else if (begin == first && until == last) {
      fetch_block(wanted, out, until - begin);
    } else if (until - begin >= small_bytes && is_verified(wanted)) {
      fetch(place, begin, out, until - begin);
    } else {
      loaded_.reset();
      buffer_.resize(static_cast<std::size_t>(block_bytes));
      fetch_block(wanted, buffer_.data(), last - first);
      loaded_ = wanted;
      continue;
    }
    out += until - begin;
    begin = until;
  }
}

void Reader::read_part(Place place, const Slab& part, const Slab& target, char* out) const {
  const SliceInfo& slice = manifest_.shards[place.shard].slices[place.slice];
  const std::int64_t size = size_of(manifest_.arrays[slice.array].dtype);
  for_each_run(part, slice.slab, target,
               [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                 copy_bytes(place, from * size, (from + count) * size, out + to * size);
               });
}

void Reader::read(const std::string& name, DType dtype, const Extents& shape, void* out) const {
  read_slice(name, dtype, shape, Extents(shape.size(), 0), shape, out);
}

void Reader::read_slice(const std::string& name, DType dtype, const Extents& shape,
                        const Extents& offset, const Extents& extent, void* out) const {
  const auto found = numbers_.find(name);
  check_usage(
      found != numbers_.end(), folder_, ": holds no array '", name,
      "', which this deck's model or optimizer needs; use the deck saved with this checkpoint (",
      folder_, "/", deck_name, ")");
  const ArrayInfo& array = manifest_.arrays[found->second];
  check_usage(array.dtype == dtype && array.shape == shape, folder_, ": array '", name, "' is ",
              name_of(array.dtype), " ", shape_text(array.shape), ", but this deck's model needs ",
              name_of(dtype), " ", shape_text(shape), "; use the deck saved with this checkpoint (",
              folder_, "/", deck_name, ")");
  const Slab target{offset, extent};
  expect_within(text(folder_, ": array '", name, "'"), target, shape);
  if (volume(extent) == 0) return;
  for (const Place place : places_[found->second]) {
    const SliceInfo& slice = manifest_.shards[place.shard].slices[place.slice];
    if (const auto part = intersection(slice.slab, target))
      read_part(place, *part, target, static_cast<char*>(out));
  }
}

}  // namespace trireme::checkpoint
