// Reads slices of arrays across the shards of a checkpoint, compares the arrays of two checkpoints,
// and chooses the checkpoint to continue from.
#include <trireme/checkpoint/reader.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/lineage.hpp>
#include <trireme/checkpoint/node_local.hpp>
#include <trireme/checkpoint/verify.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

namespace trireme::checkpoint {
namespace {

constexpr std::size_t open_files = 128;
constexpr std::int64_t small_bytes = 64 << 10;  // smaller parts are copied from a buffered block

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
  // Many systems limit a process to 1024 open files.
  if (files_.size() >= open_files) files_.clear();
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

/// Reads a whole block, and verifies it at its first read.
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

/// Copies bytes [begin, end) of a slice's dataset. Small parts of blocks, and parts of blocks that
/// are not yet verified, are copied from a whole block in the buffer.
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

namespace {

constexpr std::int64_t compared_elements = 1 << 20;

template <class T>
double loaded(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

/// IEEE 754 binary16: 5 bits of exponent, 10 of mantissa.
double half(const char* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double value = 0;
  if (exponent == 31)
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    value = std::ldexp(mantissa, -24);
  else
    value = std::ldexp(mantissa + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

double brain_float(const char* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}

double number(DType dtype, const char* at) {
  switch (dtype) {
    case DType::fp64:
      return loaded<double>(at);
    case DType::fp32:
      return loaded<float>(at);
    case DType::bf16:
      return brain_float(at);
    case DType::fp16:
      return half(at);
    case DType::int64:
      return loaded<std::int64_t>(at);
    case DType::int32:
      return loaded<std::int32_t>(at);
    case DType::uint32:
      return loaded<std::uint32_t>(at);
    case DType::uint16:
      return loaded<std::uint16_t>(at);
    case DType::uint8:
      return loaded<std::uint8_t>(at);
  }
  return 0;
}

void add_element(Difference& out, double x, double y) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  ++out.different;
  if (x == y) return;  // 0 and -0, or large integers that are the same double
  const double absolute = std::abs(x - y);
  const double relative = absolute / std::max(std::abs(x), std::abs(y));
  const bool finite = std::isfinite(x) && std::isfinite(y);
  out.largest_absolute = std::max(out.largest_absolute, finite ? absolute : infinity);
  out.largest_relative = std::max(out.largest_relative, finite ? relative : infinity);
}

Difference difference(const Reader& a, const Reader& b, const ArrayInfo& array) {
  Difference out{array.name};
  out.elements = array.elements();
  const auto size = static_cast<std::size_t>(size_of(array.dtype));
  const auto most = static_cast<std::size_t>(std::min(out.elements, compared_elements));
  std::vector<char> left(most * size);
  std::vector<char> right(most * size);
  for_each_block(whole(array.shape), compared_elements, [&](const Slab& block) {
    const auto count = static_cast<std::size_t>(volume(block.extent));
    a.read_slice(array.name, array.dtype, array.shape, block.offset, block.extent, left.data());
    b.read_slice(array.name, array.dtype, array.shape, block.offset, block.extent, right.data());
    if (std::memcmp(left.data(), right.data(), count * size) == 0) return;
    for (std::size_t i = 0; i < count * size; i += size)
      if (std::memcmp(left.data() + i, right.data() + i, size) != 0)
        add_element(out, number(array.dtype, left.data() + i),
                    number(array.dtype, right.data() + i));
  });
  return out;
}

std::string kind(const ArrayInfo& array) {
  return text(name_of(array.dtype), " ", shape_text(array.shape));
}

}  // namespace

std::vector<Difference> compare(const Reader& a, const Reader& b) {
  std::vector<Difference> out;
  for (const auto& array : a.arrays()) {
    const auto same = [&](const ArrayInfo& other) { return other.name == array.name; };
    const auto other = std::ranges::find_if(b.arrays(), same);
    if (other == b.arrays().end())
      out.push_back({array.name, "only in the first"});
    else if (other->dtype != array.dtype || other->shape != array.shape)
      out.push_back({array.name, text(kind(array), " and ", kind(*other))});
    else
      out.push_back(difference(a, b, array));
  }
  for (const auto& array : b.arrays())
    if (!a.has(array.name)) out.push_back({array.name, "only in the second"});
  return out;
}

namespace {

namespace fs = std::filesystem;

/// The checkpoint that the file `latest` names, if it exists. `warns`: whether to warn if only
/// other checkpoints exist.
std::optional<std::string> named_latest(const std::string& directory, bool warns) {
  const std::string path = directory + "/" + latest_name;
  std::string name;
  std::string reason = " is missing";
  try {
    name = read_latest(directory);
    std::error_code missing;
    if (step_of(name) && fs::is_directory(directory + "/" + name, missing)) return name;
    if (fs::exists(fs::symlink_status(path, missing)))
      reason = text(": names '", name.substr(0, 80), "', which is not a checkpoint in ", directory);
  } catch (const Error& error) {
    reason = text(": ", error.what());
  }
  if (warns && !folders_in(directory).empty())
    log::warn(text(path, reason, "; the newest intact checkpoint is used"));
  return std::nullopt;
}

bool intact(const std::string& folder) {
  try {
    verify_outline(folder, read_manifest(folder));
    return true;
  } catch (const Error& error) {
    log::warn(text("checkpoint ", folder, " is skipped: ", error.what()));
    return false;
  }
}

Start last_start(const Member& member) {
  return member.lineage.starts.empty() ? Start{} : member.lineage.starts.back();
}

/// The newest checkpoint of the last attempt of the directory's run. If this run has no checkpoint,
/// the run of the checkpoint with the highest step takes its place.
const Member& newest(const std::vector<Member>& members, const std::string& directory) {
  std::string run;
  try {
    run = read_attempt(directory).value_or(Attempt{}).run;
  } catch (const Error&) {  // the file `attempt` is damaged
  }
  const auto is_of_run = [&](const Member& m) { return last_start(m).run == run; };
  if (std::ranges::none_of(members, is_of_run)) run = last_start(members.front()).run;
  const Member* last = nullptr;
  for (const Member& member : members)
    if (is_of_run(member) &&
        (last == nullptr || last_start(member).attempt > last_start(*last).attempt))
      last = &member;
  return *last;
}

}  // namespace

std::optional<std::string> latest(const std::string& directory) {
  std::set<std::string> damaged;
  return latest(directory, damaged);
}

std::optional<std::string> latest(const std::string& directory, std::set<std::string>& damaged) {
  const auto usable = [&](const std::string& name) {
    const std::string folder = directory + "/" + name;
    if (damaged.contains(folder)) return false;
    if (intact(folder)) return true;
    damaged.insert(folder);
    return false;
  };
  if (const auto last = announced(directory); last && usable(*last)) return directory + "/" + *last;
  // `damaged` receives the path of `latest`, so that several calls warn only once.
  const auto named = named_latest(directory, damaged.insert(directory + "/" + latest_name).second);
  if (named && usable(*named)) return directory + "/" + *named;

  std::vector<std::string> unreadable;
  std::vector<Member> members = members_of(directory, &unreadable);
  std::optional<Lineage> tip;
  for (const Member& member : members)
    if (member.name == named) tip = member.lineage;
  if (named && !tip)  // `named` is unreadable; later steps may be on another branch
    std::erase_if(members, [&](const Member& m) { return m.lineage.step >= *step_of(*named); });
  if (!tip && !members.empty()) tip = newest(members, directory).lineage;
  for (const std::string& name : unreadable)
    if (!named && (!tip || *step_of(name) > tip->step)) usable(name);  // warns about it
  if (!tip) return std::nullopt;
  for (const Member& member : members)
    if (precedes(member.lineage, *tip) && usable(member.name)) return directory + "/" + member.name;
  return std::nullopt;
}

std::string checkpoint_folder(const std::string& path) {
  check_usage(fs::is_directory(path), path, ": no such checkpoint folder");
  if (fs::exists(path + "/" + manifest_name)) return path;
  std::error_code missing;
  const std::string of_run = path + "/checkpoints";
  const bool is_run = fs::is_directory(of_run, missing);
  auto newest = latest(path);
  if (!newest && is_run) newest = latest(of_run);
  check_usage(newest.has_value(), path,
              is_run ? "/checkpoints has no complete checkpoint; "
                     : " is neither a checkpoint, nor a folder of complete checkpoints or of a "
                       "run; ",
              "give a folder such as step_00000100");
  return *newest;
}

}  // namespace trireme::checkpoint
