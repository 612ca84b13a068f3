// Compares files of a checkpoint with the sizes and checksums in its manifest.
#include <trireme/checkpoint/verify.hpp>

#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <filesystem>

namespace trireme::checkpoint {
namespace {

// Bytes per read: few enough to be still in the cache when they are hashed.
constexpr std::int64_t read_bytes = 256 << 10;

constexpr const char* remedy = "; copy the folder again or continue from another checkpoint";

io::InputFile open(const std::string& path, std::int64_t bytes) {
  std::error_code error;
  check(std::filesystem::exists(path, error) || error, path,
        ": is missing; the manifest lists it with ", bytes, " bytes", remedy);
  io::InputFile file = open_member(path);
  check(file.size() == bytes, path, ": has ", file.size(), " bytes, expected ", bytes,
        file.size() < bytes ? "; the file is truncated" : "", remedy);
  return file;
}

const FileInfo& listed(const std::string& folder, const Manifest& manifest,
                       const std::string& name) {
  const auto info = std::ranges::find(manifest.files, name, &FileInfo::name);
  check(info != manifest.files.end(), folder, "/", manifest_name, ": does not list the file ",
        name);
  return *info;
}

void expect_digest(const std::string& path, const Digest& found, const Digest& expected) {
  check(found == expected, path, ": is damaged or part of another checkpoint: checksum ",
        found.hex(), ", expected ", expected.hex(), remedy);
}

}  // namespace

io::InputFile open_member(const std::string& path) {
  try {
    return io::InputFile(path);
  } catch (const UsageError& error) {
    throw Error(text(error.what(), remedy));
  }
}

void verify_structure(const std::string& folder, const Manifest& manifest, const ShardInfo& shard) {
  const auto file = open(folder + "/" + shard.name, shard.bytes);
  const Digest found = structure_digest(file, manifest.storage(shard));
  check(found == shard.structure, file.path(), ": is damaged outside its datasets: checksum ",
        found.hex(), ", expected ", shard.structure.hex(), remedy);
}

void read_block(const io::InputFile& file, const Manifest& manifest, const ShardInfo& shard,
                std::size_t slice, std::size_t number, void* out) {
  const SliceInfo& info = shard.slices[slice];
  const std::int64_t first = static_cast<std::int64_t>(number) * block_bytes;
  const std::int64_t bytes = std::min(block_bytes, manifest.slice_bytes(info) - first);
  const std::int64_t begin = info.file_offset + first;
  auto* at = static_cast<char*>(out);
  Checksum sum;
  for (std::int64_t done = 0; done < bytes; done += read_bytes) {
    const auto piece = static_cast<std::size_t>(std::min(read_bytes, bytes - done));
    file.read(begin + done, at + done, piece);
    sum.update(at + done, piece);
  }
  const Digest found = sum.digest();
  if (found == info.blocks[number]) return;  // building the names below takes time
  check(false, file.path(), ": dataset '", manifest.datasets(shard)[slice],
        "' is damaged in block ", number, " of ", info.blocks.size(), " (bytes ", begin, " to ",
        begin + bytes - 1, " of the file): checksum ", found.hex(), ", expected ",
        info.blocks[number].hex(), remedy);
}

void verify_file(const std::string& folder, const Manifest& manifest, const std::string& name) {
  const FileInfo& info = listed(folder, manifest, name);
  const std::string path = open(folder + "/" + name, info.bytes).path();
  expect_digest(path, io::file_checksum(path), info.digest);
}

std::string read_member(const std::string& folder, const Manifest& manifest,
                        const std::string& name) {
  const FileInfo& info = listed(folder, manifest, name);
  const io::InputFile file = open(folder + "/" + name, info.bytes);
  std::string content(static_cast<std::size_t>(info.bytes), '\0');
  file.read(0, content.data(), content.size());
  expect_digest(file.path(), checksum(content.data(), content.size()), info.digest);
  return content;
}

void verify_outline(const std::string& folder, const Manifest& manifest) {
  for (const char* name : {deck_name, index_name}) listed(folder, manifest, name);
  for (const FileInfo& file : manifest.files) verify_file(folder, manifest, file.name);
  for (const auto& shard : manifest.shards) verify_structure(folder, manifest, shard);
}

void verify_data(const std::string& folder, const Manifest& manifest, const ShardInfo& shard,
                 const std::function<void()>& progress) {
  std::vector<char> buffer(static_cast<std::size_t>(block_bytes));
  const auto file = open(folder + "/" + shard.name, shard.bytes);
  for (std::size_t s = 0; s < shard.slices.size(); ++s)
    for (std::size_t number = 0; number < shard.slices[s].blocks.size(); ++number) {
      read_block(file, manifest, shard, s, number, buffer.data());
      if (progress) progress();
    }
}

void verify(const std::string& folder, const Manifest& manifest) {
  verify_outline(folder, manifest);
  for (const auto& shard : manifest.shards) verify_data(folder, manifest, shard);
}

void verify(const std::string& folder) {
  verify(folder, read_manifest(folder));
}

}  // namespace trireme::checkpoint
