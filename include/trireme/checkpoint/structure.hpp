#pragma once

#include <trireme/base/checksum.hpp>
#include <trireme/io/input_file.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// Bytes [begin, begin + bytes) of a file.
struct Region {
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
};

/// The regions in order. Error naming `file` unless they lie in it, are not empty and do not
/// overlap.
std::vector<Region> ordered(const std::string& file, std::int64_t file_bytes,
                            std::vector<Region> regions);

/// Digest of all bytes of a file outside the given regions, in the file's order: what HDF5 keeps of
/// its own around the datasets' storage.
Digest structure_digest(const io::InputFile& file, std::vector<Region> storage);

}  // namespace trireme::checkpoint
