#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/checkpoint/manifest.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>

using namespace trireme;

/// The input is a manifest without its checksum, which is made right. Anything but an Error, or a
/// manifest that is written and read back as the same text and whose slices have sizes, is a
/// finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const std::string body(reinterpret_cast<const char*>(input), size);
  const std::string sealed =
      body + ",\n\"checksum\":\"" + checksum(body.data(), body.size()).hex() + "\"}\n";
  try {
    const auto manifest = checkpoint::parse_manifest(sealed, "fuzz");
    for (const auto& shard : manifest.shards) {
      for (const auto& region : manifest.storage(shard))
        if (region.begin < 0 || region.bytes < 0 || region.begin + region.bytes > shard.bytes)
          std::abort();
      if (manifest.datasets(shard).size() != shard.slices.size()) std::abort();
    }
    const std::string written = checkpoint::to_json(manifest);
    if (checkpoint::to_json(checkpoint::parse_manifest(written, "written")) != written)
      std::abort();
  } catch (const Error&) {
  }
  return 0;
}
