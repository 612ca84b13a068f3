#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/verify.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <filesystem>

namespace trireme::checkpoint {
namespace {

constexpr const char* remedy = "; copy the folder again or go on from another checkpoint";

io::InputFile open(const std::string& path, std::int64_t bytes) {
  std::error_code error;
  check(std::filesystem::exists(path, error) || error, path, ": is missing, the manifest expects ",
        bytes, " bytes", remedy);
  io::InputFile file(path);
  check(file.size() == bytes, path, ": has ", file.size(), " bytes, expected ", bytes,
        file.size() < bytes ? "; the file is truncated" : "", remedy);
  return file;
}

}  // namespace

void verify_structure(const std::string& folder, const Manifest& manifest, const ShardInfo& shard) {
  const auto file = open(folder + "/" + shard.name, shard.bytes);
  const io::Digest found = structure_digest(file, manifest.storage(shard));
  check(found == shard.structure, file.path(),
        ": is damaged outside its datasets' numbers: checksum ", found.hex(), ", expected ",
        shard.structure.hex(), remedy);
}

void verify_block(const std::string& folder, const Manifest& manifest, const ShardInfo& shard,
                  std::size_t slice, std::size_t number, const void* data, std::size_t bytes) {
  const io::Digest found = io::checksum(data, bytes);
  if (found == shard.slices[slice].blocks[number]) return;
  const auto begin =
      shard.slices[slice].file_offset + static_cast<std::int64_t>(number) * block_bytes;
  check(false, folder, "/", shard.name, ": dataset '", manifest.datasets(shard)[slice],
        "' is damaged in block ", number, " of ", shard.slices[slice].blocks.size(), " (bytes ",
        begin, " to ", begin + static_cast<std::int64_t>(bytes) - 1, " of the file): checksum ",
        found.hex(), ", expected ", shard.slices[slice].blocks[number].hex(), remedy);
}

void verify_file(const std::string& folder, const Manifest& manifest, const std::string& name) {
  const auto info = std::ranges::find(manifest.files, name, &FileInfo::name);
  check(info != manifest.files.end(), folder, "/", manifest_name, ": names no file ", name);
  const std::string path = open(folder + "/" + name, info->bytes).path();
  const io::Digest found = io::file_checksum(path);
  check(found == info->digest, path, ": is damaged, or of another checkpoint: checksum ",
        found.hex(), ", expected ", info->digest.hex(), remedy);
}

void verify_outline(const std::string& folder, const Manifest& manifest) {
  for (const char* name : {deck_name, index_name}) verify_file(folder, manifest, name);
  for (const auto& shard : manifest.shards) verify_structure(folder, manifest, shard);
}

void verify(const std::string& folder, const Manifest& manifest) {
  verify_outline(folder, manifest);
  std::vector<char> buffer;
  for (const auto& shard : manifest.shards) {
    const auto file = open(folder + "/" + shard.name, shard.bytes);
    for (std::size_t s = 0; s < shard.slices.size(); ++s) {
      const SliceInfo& slice = shard.slices[s];
      const std::int64_t bytes = manifest.slice_bytes(slice);
      buffer.resize(
          static_cast<std::size_t>(std::max(std::ssize(buffer), std::min(bytes, block_bytes))));
      for (std::int64_t begin = 0; begin < bytes; begin += block_bytes) {
        const auto size = static_cast<std::size_t>(std::min(block_bytes, bytes - begin));
        file.read(slice.file_offset + begin, buffer.data(), size);
        verify_block(folder, manifest, shard, s, static_cast<std::size_t>(begin / block_bytes),
                     buffer.data(), size);
      }
    }
  }
}

void verify(const std::string& folder) {
  verify(folder, read_manifest(folder));
}

}  // namespace trireme::checkpoint
