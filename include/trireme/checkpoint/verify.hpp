#pragma once

#include <trireme/checkpoint/manifest.hpp>
#include <trireme/io/input_file.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace trireme::checkpoint {

// Errors of these functions name the file and, for a damaged file, a remedy.

/// Opens a file of a checkpoint. Error if this fails.
io::InputFile open_member(const std::string& path);

/// Verifies a shard's size and the bytes outside the datasets' storage. Reads only these bytes.
void verify_structure(const std::string& folder, const Manifest& manifest, const ShardInfo& shard);

/// Reads block `number` of slice `slice` from the shard's open file into `out`, and verifies it.
void read_block(const io::InputFile& file, const Manifest& manifest, const ShardInfo& shard,
                std::size_t slice, std::size_t number, void* out);

/// Verifies every byte of a file that is not a shard.
void verify_file(const std::string& folder, const Manifest& manifest, const std::string& name);

/// The verified content of a file that is not a shard.
std::string read_member(const std::string& folder, const Manifest& manifest,
                        const std::string& name);

/// Verifies everything except the arrays' data. Error if the manifest does not list deck and index.
void verify_outline(const std::string& folder, const Manifest& manifest);

/// Verifies the arrays' data in a shard. `progress`, if given, is called after each block.
void verify_data(const std::string& folder, const Manifest& manifest, const ShardInfo& shard,
                 const std::function<void()>& progress = {});

/// Verifies every byte of a checkpoint.
void verify(const std::string& folder, const Manifest& manifest);
void verify(const std::string& folder);

}  // namespace trireme::checkpoint
