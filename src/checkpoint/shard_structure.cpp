#include <trireme/base/check.hpp>
#include <trireme/checkpoint/shard.hpp>

#include <algorithm>
#include <utility>

namespace trireme::checkpoint {

std::vector<Region> ordered(const std::string& file, std::int64_t file_bytes,
                            std::vector<Region> regions) {
  std::ranges::sort(regions, {}, &Region::begin);
  std::int64_t end = 0;
  for (const auto& [begin, bytes] : regions) {
    check(begin >= end && bytes > 0 && bytes <= file_bytes && begin <= file_bytes - bytes, file,
          ": ", bytes, " bytes of a dataset begin at byte ", begin, "; they must be in bytes ", end,
          " to ", file_bytes, " and not empty");
    end = begin + bytes;
  }
  return regions;
}

Digest structure_digest(const io::InputFile& file, std::vector<Region> storage) {
  Checksum sum;
  std::int64_t at = 0;
  const auto until = [&](std::int64_t end) {
    file.for_each_block(at, end,
                        [&](const std::byte* data, std::size_t bytes) { sum.update(data, bytes); });
  };
  for (const auto& [begin, bytes] : ordered(file.path(), file.size(), std::move(storage))) {
    until(begin);
    at = begin + bytes;
  }
  until(file.size());
  return sum.digest();
}

}  // namespace trireme::checkpoint
