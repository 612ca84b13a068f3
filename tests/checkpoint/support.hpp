#pragma once

#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/writer.hpp>

#include <support/messages.hpp>
#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace trireme::checkpoint::testing {

using trireme::testing::expect_mentions;
using trireme::testing::message_of;

inline void replace(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // on some file systems overwriting waits for the device
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Flips one bit of a file, by default in its middle.
inline void damage(const std::string& path, std::int64_t at = -1) {
  std::string bytes = trireme::testing::read_file(path);
  auto& byte = bytes[at < 0 ? bytes.size() / 2 : static_cast<std::size_t>(at)];
  byte = static_cast<char>(byte ^ 1);
  replace(path, bytes);
}

inline std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    found.push_back(entry.path().filename().string());
  std::sort(found.begin(), found.end());
  return found;
}

/// A whole array of bytes in which neighbouring elements differ.
struct TestArray {
  std::string name;
  DType dtype;
  Extents shape;
  std::vector<char> bytes;

  TestArray(std::string array, DType type, Extents extents)
      : name(std::move(array)), dtype(type), shape(std::move(extents)) {
    bytes.resize(static_cast<std::size_t>(volume(shape) * size_of(dtype)));
    std::uint64_t state = std::hash<std::string>()(name);
    for (auto& byte : bytes) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<char>(state >> 56);
    }
  }

  /// The contiguous bytes of a slice, element by element: the naive reference for copies. Of large
  /// matrices, row by row.
  std::vector<char> slice(const Slab& slab) const {
    std::vector<char> out;
    if (shape.size() == 2 && volume(shape) >= 100000) {
      const std::int64_t first = slab.offset[1] * size_of(dtype);
      const std::int64_t row = slab.extent[1] * size_of(dtype);
      out.resize(static_cast<std::size_t>(slab.extent[0] * row));
      for (std::int64_t i = 0; i < slab.extent[0]; ++i)
        std::memcpy(out.data() + i * row,
                    bytes.data() + (slab.offset[0] + i) * shape[1] * size_of(dtype) + first,
                    static_cast<std::size_t>(row));
      return out;
    }
    const auto size = static_cast<std::size_t>(size_of(dtype));
    const std::int64_t elements = volume(shape);
    for (std::int64_t flat = 0; flat < elements; ++flat) {
      bool inside = true;
      std::int64_t rest = flat;
      for (std::size_t a = shape.size(); a-- > 0; rest /= shape[a]) {
        const std::int64_t i = rest % shape[a] - slab.offset[a];
        inside = inside && i >= 0 && i < slab.extent[a];
      }
      const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(flat * size_of(dtype));
      if (inside) out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(size));
    }
    return out;
  }
};

/// Splits `shape` into `parts` along `axis`, unevenly if it is not divisible; parts may be empty.
inline std::vector<Slab> cut(const Extents& shape, std::size_t axis, std::int64_t parts) {
  std::vector<Slab> out;
  for (std::int64_t p = 0; p < parts; ++p) {
    Slab slab = whole(shape);
    if (shape.empty()) {
      if (p == 0) out.push_back(slab);
      continue;
    }
    const std::size_t a = std::min(axis, shape.size() - 1);
    slab.offset[a] = shape[a] * p / parts;
    slab.extent[a] = shape[a] * (p + 1) / parts - slab.offset[a];
    out.push_back(slab);
  }
  return out;
}

/// Writes a checkpoint of `arrays`, each split along an axis into one slice per shard.
inline std::string save_cut(const std::string& directory, std::int64_t step,
                            const std::vector<TestArray>& arrays, std::size_t axis, int shards) {
  const std::string partial = begin(directory, step);
  std::vector<ShardSummary> summaries;
  for (int s = 0; s < shards; ++s) {
    std::vector<std::vector<char>> data;
    std::vector<SliceView> slices;
    for (const auto& array : arrays) {
      const auto slabs = cut(array.shape, axis, shards);
      if (static_cast<std::size_t>(s) >= slabs.size()) continue;
      const Slab& slab = slabs[static_cast<std::size_t>(s)];
      data.push_back(array.slice(slab));
      slices.push_back(
          {array.name, array.dtype, array.shape, slab.offset, slab.extent, data.back().data()});
    }
    summaries.push_back(parse_summary(pack(write_shard(partial, s, slices))));
  }
  commit(directory, {step, 10 * step, "[run]\nsteps = 7\n", "tensor 2", {{"scale", "0.5"}}},
         summaries, {});
  return directory + "/" + folder_name(step);
}

/// Whether tests that are short by default run in full (label soak).
inline bool soak() {
  return std::getenv("TRIREME_SOAK") != nullptr;
}

}  // namespace trireme::checkpoint::testing
