// Assembles, writes and parses manifests.
#include <trireme/checkpoint/manifest.hpp>

#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/lineage.hpp>
#include <trireme/io/input_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string_view>

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t manifest_limit_bytes = std::int64_t{4} << 30;

/// Index of the slice's array in the manifest; adds a new array. Error if the slice differs from an
/// earlier slice of the array in type or shape.
std::size_t number_of(const SliceSummary& slice, Manifest& manifest,
                      std::map<std::string, std::size_t>& numbers) {
  const auto [at, added] = numbers.emplace(slice.name, manifest.arrays.size());
  if (added) manifest.arrays.push_back({slice.name, slice.dtype, slice.shape});
  const ArrayInfo& array = manifest.arrays[at->second];
  check(array.dtype == slice.dtype && array.shape == slice.shape, "array '", slice.name, "' is ",
        name_of(array.dtype), " ", shape_text(array.shape), " in one slice and ",
        name_of(slice.dtype), " ", shape_text(slice.shape), " in another");
  return at->second;
}

std::string content_of(const std::string& path) {
  std::error_code error;  // on an error, opening the file reports the reason
  check_usage(std::filesystem::exists(path, error) || error, path,
              ": is missing; this folder is not a complete checkpoint");
  return io::read_text_file(path, manifest_limit_bytes);
}

}  // namespace

Files files_of(const RunState& state) {
  Files files = state.files;
  for (const auto& [name, content] : files)
    check(name != deck_name && name != index_name && name != manifest_name &&
              !name.starts_with("shard_") && name.find('/') == std::string::npos,
          "a checkpoint cannot keep a file '", name, "'");
  files[deck_name] = state.deck_toml;
  return files;
}

std::int64_t Manifest::bytes() const {
  std::int64_t sum = 0;
  for (const auto& file : files) sum += file.bytes;
  for (const auto& shard : shards) sum += shard.bytes;
  return sum;
}

std::int64_t Manifest::slice_bytes(const SliceInfo& slice) const {
  return volume(slice.slab.extent) * size_of(arrays[slice.array].dtype);
}

std::vector<Region> Manifest::storage(const ShardInfo& shard) const {
  std::vector<Region> regions;
  for (const auto& slice : shard.slices) regions.push_back({slice.file_offset, slice_bytes(slice)});
  return regions;
}

std::vector<std::string> Manifest::datasets(const ShardInfo& shard) const {
  std::vector<std::string> of_arrays;
  for (const auto& slice : shard.slices) of_arrays.push_back(arrays[slice.array].name);
  return dataset_names(of_arrays);
}

Manifest assemble(const std::vector<ShardSummary>& summaries) {
  Manifest manifest;
  std::map<std::string, std::size_t> numbers;
  std::vector<std::vector<Slab>> slabs;
  for (const auto& summary : summaries) {
    ShardInfo shard{summary.file, summary.bytes, summary.structure, {}};
    for (const auto& slice : summary.slices) {
      const std::size_t array = number_of(slice, manifest, numbers);
      slabs.resize(manifest.arrays.size());
      slabs[array].push_back(slice.slab);
      if (slice.bytes() > 0)
        shard.slices.push_back({array, slice.slab, slice.file_offset, slice.blocks});
    }
    manifest.shards.push_back(std::move(shard));
  }
  for (std::size_t a = 0; a < slabs.size(); ++a)
    expect_tiling(text("array '", manifest.arrays[a].name, "'"), manifest.arrays[a].shape,
                  slabs[a]);
  return manifest;
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + manifest_name;
  return parse_manifest(content_of(path), path);
}

Lineage read_lineage(const std::string& folder) {
  const std::string path = folder + "/" + manifest_name;
  return parse_lineage(content_of(path), path);
}

// The manifest is JSON that ends with a checksum of all preceding bytes.

namespace {

using Json = nlohmann::json;

constexpr std::string_view seal_begin = ",\n\"checksum\":\"";
constexpr std::string_view seal_end = "\"}\n";
constexpr std::string_view head_end = ",\n\"block_bytes\":";  // JSON escapes line feeds
constexpr std::size_t digest_digits = 32;
constexpr std::size_t seal_size = seal_begin.size() + digest_digits + seal_end.size();

std::string in_quotes(const std::string& value) {
  return Json(value).dump();
}

std::string list(const Extents& values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i) out += text(i > 0 ? "," : "", values[i]);
  return out + "]";
}

std::string list(const std::vector<Start>& starts) {
  std::string out = "[";
  for (std::size_t i = 0; i < starts.size(); ++i)
    out += text(i > 0 ? ",\n " : "\n ", "{\"run\":", in_quotes(starts[i].run),
                ",\"attempt\":", starts[i].attempt, ",\"step\":", starts[i].step,
                ",\"parent\":", in_quotes(starts[i].parent), "}");
  return out + "]";
}

/// Writes slices without the JSON library, because a shard may have millions of digests.
void append_shard(std::string& out, const ShardInfo& shard) {
  out += text("{\"name\":", in_quotes(shard.name), ",\"bytes\":", shard.bytes, ",\"structure\":\"",
              shard.structure.hex(), "\",\"slices\":[");
  for (std::size_t i = 0; i < shard.slices.size(); ++i) {
    const SliceInfo& slice = shard.slices[i];
    out += text(i > 0 ? ",\n" : "\n", " [", slice.array, ",", list(slice.slab.offset), ",",
                list(slice.slab.extent), ",", slice.file_offset, ",\"");
    for (const auto& block : slice.blocks) out += block.hex();
    out += "\"]";
  }
  out += "]}";
}

Digest digest_from(std::string_view hex, const std::string& path) {
  const auto digest = parse_digest(hex);
  check(digest.has_value(), path, ": '", hex.substr(0, 80), "' is not a checksum");
  return *digest;
}

/// The file name in `json`; Error unless it is a plain name without a folder.
std::string plain_name(const Json& json, const std::string& path) {
  auto name = json.get<std::string>();
  check(!name.empty() && name.find('/') == std::string::npos && name != "." && name != "..", path,
        ": '", name, "' is not a file name");
  return name;
}

/// The number in `json`; Error unless it is an integer of at least 0. The JSON library would
/// truncate a fraction.
std::int64_t whole_number(const Json& json, const std::string& path) {
  const bool whole = json.is_number_unsigned()
                         ? json.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max()
                         : json.is_number_integer() && json.get<std::int64_t>() >= 0;
  if (!whole)
    check(
        false, path, ": has ",
        json.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40),
        " where a whole number of at least 0 is expected; copy the folder again or continue from ",
        "another checkpoint");
  return json.get<std::int64_t>();
}

Extents whole_numbers(const Json& json, const std::string& path) {
  Extents numbers;
  for (const Json& number : json.get_ref<const Json::array_t&>())
    numbers.push_back(whole_number(number, path));
  return numbers;
}

std::vector<Start> starts_from(const Json& json, const std::string& path) {
  std::vector<Start> starts;
  for (const Json& start : json.get_ref<const Json::array_t&>())
    starts.push_back({start.at("run").get<std::string>(), whole_number(start.at("attempt"), path),
                      whole_number(start.at("step"), path), start.at("parent").get<std::string>()});
  return starts;
}

ArrayInfo array_from(const Json& json, const std::string& path) {
  ArrayInfo array;
  array.name = json.at("name").get<std::string>();
  const auto type = json.at("dtype").get<std::string>();
  const auto dtype = parse<DType>(type);
  check(dtype.has_value(), path, ": array '", array.name, "' has the unknown type ", type);
  array.dtype = *dtype;
  array.shape = whole_numbers(json.at("shape"), path);
  check(is_small_enough(array.shape), path, ": array '", array.name, "' has the shape ",
        shape_text(array.shape), ", more than 2^56 elements; copy the folder again or continue ",
        "from another checkpoint");
  return array;
}

SliceInfo slice_from(const Json& json, const Manifest& manifest, const std::string& path) {
  SliceInfo slice;
  slice.array = static_cast<std::size_t>(whole_number(json.at(0), path));
  check(slice.array < manifest.arrays.size(), path, ": a slice belongs to array number ",
        slice.array, ", but there are only ", manifest.arrays.size(), " arrays");
  slice.slab = {whole_numbers(json.at(1), path), whole_numbers(json.at(2), path)};
  slice.file_offset = whole_number(json.at(3), path);
  const ArrayInfo& array = manifest.arrays[slice.array];
  expect_within(text(path, ": array '", array.name, "'"), slice.slab, array.shape);
  const auto& hex = json.at(4).get_ref<const std::string&>();
  const auto blocks = (manifest.slice_bytes(slice) + block_bytes - 1) / block_bytes;
  check(hex.size() == static_cast<std::size_t>(blocks) * digest_digits, path, ": array '",
        array.name, "' has ", blocks, " blocks in a slice and ", hex.size(),
        " digits of checksums");
  for (std::size_t at = 0; at < hex.size(); at += digest_digits)
    slice.blocks.push_back(digest_from(std::string_view(hex).substr(at, digest_digits), path));
  return slice;
}

Manifest manifest_from(const Json& json, const std::string& path) {
  Manifest manifest;
  manifest.library = json.at("library").get<std::string>();
  manifest.step = whole_number(json.at("step"), path);
  manifest.samples = whole_number(json.at("samples"), path);
  manifest.layout = json.at("layout").get<std::string>();
  manifest.values = json.at("values").get<std::map<std::string, std::string>>();
  manifest.starts = starts_from(json.at("starts"), path);
  for (const auto& file : json.at("files"))
    manifest.files.push_back({plain_name(file.at("name"), path),
                              whole_number(file.at("bytes"), path),
                              digest_from(file.at("xxh3_128").get<std::string>(), path)});
  for (const auto& array : json.at("arrays")) manifest.arrays.push_back(array_from(array, path));
  std::vector<std::vector<Slab>> slabs(manifest.arrays.size());
  for (const auto& item : json.at("shards")) {
    ShardInfo shard{plain_name(item.at("name"), path),
                    whole_number(item.at("bytes"), path),
                    digest_from(item.at("structure").get<std::string>(), path),
                    {}};
    for (const auto& slice : item.at("slices")) {
      shard.slices.push_back(slice_from(slice, manifest, path));
      slabs[shard.slices.back().array].push_back(shard.slices.back().slab);
    }
    ordered(path, shard.bytes, manifest.storage(shard));
    manifest.shards.push_back(std::move(shard));
  }
  for (std::size_t a = 0; a < slabs.size(); ++a)
    expect_tiling(text(path, ": array '", manifest.arrays[a].name, "'"), manifest.arrays[a].shape,
                  slabs[a]);
  return manifest;
}

bool intact(std::string_view content) {
  if (content.size() < seal_size) return false;
  const auto body = content.substr(0, content.size() - seal_size);
  const auto hex = checksum(body.data(), body.size()).hex();
  return content.substr(body.size()) == text(seal_begin, hex, seal_end);
}

void expect_known_format(const Json& json, const std::string& path) {
  const auto format = whole_number(json.at("format"), path);
  check(format == known_format, path, ": has format ", format, ", but this program reads ",
        known_format,
        format > known_format ? "; it needs the newer Trireme that wrote it"
                              : "; it needs the older Trireme that wrote it");
}

/// Parses `json`, the whole manifest or its head, and returns the result of `read`. Verifies the
/// checksum of `content`, the whole manifest.
template <class Read>
auto parsed(const std::string& content, const std::string& json, const std::string& path,
            const Read& read) {
  const bool sealed = intact(content);
  try {
    const Json parsed_json = Json::parse(json);
    expect_known_format(parsed_json, path);
    check(sealed, path, ": is damaged (its checksum differs)");
    return read(parsed_json, path);
  } catch (const Json::exception&) {
    throw Error(text(path, ": is damaged (", content.size(),
                     " bytes that are not a whole manifest); copy the folder again or continue ",
                     "from another checkpoint"));
  }
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  std::string out =
      text("{\"format\":", known_format, ",\n\"library\":", in_quotes(manifest.library),
           ",\n\"step\":", manifest.step, ",\n\"samples\":", manifest.samples,
           ",\n\"layout\":", in_quotes(manifest.layout),
           ",\n\"values\":", Json(manifest.values).dump(), ",\n\"starts\":", list(manifest.starts),
           ",\n\"block_bytes\":", block_bytes, ",\n\"files\":[");
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const FileInfo& file = manifest.files[i];
    out += text(i > 0 ? ",\n " : "\n ", "{\"name\":", in_quotes(file.name),
                ",\"bytes\":", file.bytes, ",\"xxh3_128\":\"", file.digest.hex(), "\"}");
  }
  out += "],\n\"arrays\":[";
  for (std::size_t i = 0; i < manifest.arrays.size(); ++i) {
    const ArrayInfo& array = manifest.arrays[i];
    out += text(i > 0 ? ",\n " : "\n ", "{\"name\":", in_quotes(array.name), ",\"dtype\":\"",
                name_of(array.dtype), "\",\"shape\":", list(array.shape), "}");
  }
  out += "],\n\"shards\":[";
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    out += i > 0 ? ",\n" : "\n";
    append_shard(out, manifest.shards[i]);
  }
  out += "]";
  return out + text(seal_begin, checksum(out.data(), out.size()).hex(), seal_end);
}

Manifest parse_manifest(const std::string& content, const std::string& path) {
  return parsed(content, content, path, manifest_from);
}

Lineage parse_lineage(const std::string& content, const std::string& path) {
  const std::string head = content.substr(0, content.find(head_end)) + "}";
  return parsed(content, head, path, [&](const Json& json, const std::string&) {
    return Lineage{whole_number(json.at("step"), path), starts_from(json.at("starts"), path),
                   content.substr(content.size() - seal_end.size() - digest_digits, digest_digits)};
  });
}

}  // namespace trireme::checkpoint
