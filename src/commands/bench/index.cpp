#include <trireme/checkpoint/shard.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/commands/bench/bench.hpp>
#include <trireme/io/atomic_file.hpp>

namespace trireme::commands {
namespace {

constexpr std::int64_t arrays = 500;
constexpr std::int64_t shards = 512;
constexpr std::int64_t side = 4096;
constexpr Bytes room = 256 << 20;

/// Summaries of 512 shards of 500 arrays, each array split along its first or its second axis.
std::vector<checkpoint::ShardSummary> summaries() {
  std::vector<checkpoint::ShardSummary> out;
  for (std::int64_t s = 0; s < shards; ++s) {
    checkpoint::ShardSummary shard{checkpoint::shard_name(static_cast<int>(s)), 1 << 30, {}, {}};
    for (std::int64_t a = 0; a < arrays; ++a) {
      checkpoint::Slab slab{{0, 0}, {side, side}};
      const auto axis = static_cast<std::size_t>(a % 2);
      slab.offset[axis] = side / shards * s;
      slab.extent[axis] = side / shards;
      shard.slices.push_back({text("layers.", a / 10, ".array_", a % 10),
                              DType::fp32,
                              {side, side},
                              slab,
                              (a + 1) << 20,
                              {{}}});
    }
    out.push_back(std::move(shard));
  }
  return out;
}

}  // namespace

BenchReport bench_index(const BenchSetting& setting) {
  const BenchFolder folder(setting, room);
  std::vector<double> seconds;
  for (std::int64_t round = 0; round < setting.rounds; ++round) {
    std::vector<std::string> packed;
    if (setting.runtime.rank() == 0)
      for (const auto& summary : summaries()) packed.push_back(checkpoint::pack(summary));
    seconds.push_back(slowest_seconds(setting.runtime, [&] {
      setting.runtime.together([&] {
        if (packed.empty()) return;
        std::vector<checkpoint::ShardSummary> received;
        for (const auto& bytes : packed) received.push_back(checkpoint::parse_summary(bytes));
        checkpoint::Manifest manifest = checkpoint::assemble(received);
        manifest.files.push_back(checkpoint::write_index(folder.path(), manifest));
        io::replace_file(folder.path() + "/manifest.json", checkpoint::to_json(manifest));
      });
    }));
  }
  return {{"index", "seconds", median(seconds), "s",
           text(arrays, " arrays of ", shards, " shards: tiling check, index and manifest")}};
}

}  // namespace trireme::commands
