#pragma once

#include <trireme/checkpoint/manifest.hpp>
#include <trireme/io/input_file.hpp>

#include <cstdint>
#include <string>

namespace trireme::checkpoint {

/// Errors name the file, what of it is damaged, and the remedy.

/// A shard is there and has the right size, and its bytes outside the datasets' storage are those
/// that were written. Reads a few KiB.
void verify_structure(const std::string& folder, const Manifest& manifest, const ShardInfo& shard);

/// Reads block `number` of a slice from the shard's open file to `out`, which has room for it, and
/// verifies it on the way.
void read_block(const io::InputFile& file, const Manifest& manifest, const ShardInfo& shard,
                std::size_t slice, std::size_t number, void* out);

/// Every byte of a file that is no shard.
void verify_file(const std::string& folder, const Manifest& manifest, const std::string& name);

/// Everything but the numbers: verify_file and verify_structure of every shard.
void verify_outline(const std::string& folder, const Manifest& manifest);

/// Every byte.
void verify(const std::string& folder, const Manifest& manifest);
void verify(const std::string& folder);

}  // namespace trireme::checkpoint
