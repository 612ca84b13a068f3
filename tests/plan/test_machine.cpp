#include <trireme/architecture/buckets.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "plan/example.hpp"
#include "plan/machines.hpp"

/// Plans for machines that this build is not made for.
namespace trireme::plan {
namespace {

using testing::Axes;
using testing::config_of;
using testing::host_machine;
using testing::machine_of;

/// bf16 on every machine.
deck::Config narrow(const Axes& axes = {}) {
  deck::Config config = config_of(axes);
  config.precision.compute = DType::bf16;
  return config;
}

std::map<std::string, MemoryRow> memory_rows(const deck::Config& config, const Machine& machine) {
  const auto a = architecture::describe(config.model);
  std::map<std::string, MemoryRow> rows;
  for (const MemoryRow& row :
       training_memory(config, a, testing::shard_of(config, a, 0, 0), {.slots = 2}, machine))
    rows[row.what] = row;
  return rows;
}

/// What differs from the host's plan, with its bytes on the machine and on the host.
std::map<std::string, std::pair<Bytes, Bytes>> difference(const deck::Config& config,
                                                          const Machine& machine) {
  std::map<std::string, std::pair<Bytes, Bytes>> out;
  for (const auto& [what, row] : memory_rows(config, machine)) out[what].first = row.bytes;
  for (const auto& [what, row] : memory_rows(config, host_machine)) out[what].second = row.bytes;
  std::erase_if(out, [](const auto& entry) { return entry.second.first == entry.second.second; });
  return out;
}

using Differences = std::map<std::string, std::pair<Bytes, Bytes>>;
constexpr Bytes mebibyte = 1 << 20;

TEST(Machine, DevicesNeedWorkspacesForSumsAndProducts) {
  const Differences sums{{"kernel workspace", {mebibyte, 0}}};  // 2^17 sums in fp64
  EXPECT_EQ(difference(narrow(), machine_of("hip", "portable", "portable", "mpi")), sums);
  EXPECT_EQ(difference(narrow(), machine_of("cuda", "portable", "tensor_cores", "mpi")), sums);
  EXPECT_EQ(difference(config_of({}), machine_of("sycl", "portable", "portable", "mpi")), sums);
  const Differences products{{"kernel workspace", {33 * mebibyte, 0}}};
  EXPECT_EQ(difference(narrow(), machine_of("cuda", "cublaslt", "cudnn", "mpi")), products);
  EXPECT_EQ(difference(narrow(), machine_of("host", "onednn", "portable", "mpi")), Differences{});
  EXPECT_EQ(memory_rows(narrow(), host_machine).at("two-byte products").bytes, 12 * mebibyte);
}

/// 2 samples of 32 tokens, 4 heads of 8: sums [2, 4, 64, 8], deltas [2, 4, 32] and 2 counters a
/// head are 4368 numbers of 4 bytes; cuDNN takes 4 · 32 + 2 · 64 · 128 bytes a head, and 256.
TEST(Machine, CudnnGradientsNeedTheirOwnWorkspace) {
  const Machine cudnn = machine_of("cuda", "cublaslt", "cudnn", "mpi");
  deck::Config config = narrow();
  config.precision.attention = AttentionKind::cudnn;
  const Bytes own = (4 * 4368 + 63) / 64 * 64;
  const Bytes library = (8 * (4 * 32 + 2 * 64 * 128) + 256 + 63) / 64 * 64;
  ASSERT_GT(library, own);
  const auto found = difference(config, cudnn);
  ASSERT_TRUE(found.contains("scratch"));
  EXPECT_EQ(found.at("scratch").first - found.at("scratch").second, library - own);
  EXPECT_EQ(found.size(), 2u) << "with the workspace of products";
}

/// 1024 tokens and 2^18 ids: a host's block of 2^24 logits has 64 rows, a device's of 2^27 has 512.
TEST(Machine, DevicesUseLargerBlocksOfLogits) {
  deck::Config config = narrow({.tensor = 2});
  config.model.sequence = 512;
  config.model.vocabulary = 1 << 18;
  const auto found = difference(config, machine_of("hip", "portable", "portable", "mpi"));
  // Half of the ids in fp32 and their gradients in bf16; loss, and 3 statistics of each tensor rank
  // and of all, in fp64.
  const Bytes row = (1 << 17) * (4 + 2) + 8 + 3 * 8 * 2 + 3 * 8;
  EXPECT_EQ(found.at("scratch").first - found.at("scratch").second, (512 - 64) * row);

  const auto a = architecture::describe(config.model);
  const auto gathers = [&](const Machine& machine) {
    for (const TrafficRow& traffic :
         step_traffic(config, a, testing::shard_of(config, a, 0, 0), false, machine))
      if (traffic.what == "cross entropy: all-gather") return traffic.operations;
    return std::int64_t{0};
  };
  const std::int64_t micro_batches = 4;
  EXPECT_EQ(gathers(host_machine), micro_batches * 16);
  EXPECT_EQ(gathers(machine_of("hip", "portable", "portable", "mpi")), micro_batches * 2);
}

TEST(Machine, NcclScratchReplacesHostBuffers) {
  const Machine nccl = machine_of("hip", "portable", "portable", "nccl");
  const Machine mpi = machine_of("hip", "portable", "portable", "mpi");
  deck::Config config = narrow({.data = 2});
  config.parallel.bucket_bytes = 1 << 30;
  const auto a = architecture::describe(config.model);
  const auto shard = testing::shard_of(config, a, 0, 0);
  const auto arrays = architecture::rank_arrays(a, shard);
  const auto placement = architecture::place(a, shard, arrays);
  Bytes largest = 0, all = 0;
  for (const auto& bucket :
       architecture::gradient_buckets(a, shard, arrays, placement, 1 << 28, /*replicas=*/2)) {
    largest = std::max(largest, (bucket.end - bucket.begin) * 4);
    all += (bucket.end - bucket.begin) * 4;
  }
  EXPECT_EQ(all, memory_rows(config, host_machine).at("gradients").bytes);
  // One bucket at a time meets the other rank's part, which is half of its lines of 64 bytes.
  ASSERT_GT(largest, 64 * 1024);
  ASSERT_LT(largest, 32 * mebibyte);
  EXPECT_EQ(memory_rows(config, nccl).at("reductions").bytes, (largest / 64 + 1) / 2 * 64);
  EXPECT_EQ(reduction_bytes(config, a, shard, nccl), 0);
  // By MPI all of them may be under way on the host.
  EXPECT_FALSE(memory_rows(config, mpi).contains("reductions"));
  EXPECT_EQ(reduction_bytes(config, a, shard, mpi), all / 2);
}

TEST(Machine, OffloadedBytesMoveToTheHost) {
  deck::Config config = narrow();
  config.parallel.offload = Offload::both;
  const auto away = memory_rows(config, machine_of("hip", "portable", "portable", "mpi"));
  const auto here = memory_rows(config, machine_of("host", "portable", "portable", "mpi"));
  EXPECT_TRUE(away.at("optimizer state (host)").on_host);
  EXPECT_EQ(away.at("optimizer state (host)").bytes, here.at("optimizer state").bytes);
  EXPECT_FALSE(away.contains("optimizer state"));
  EXPECT_GT(away.at("saved activations (host)").bytes, 0);
  EXPECT_FALSE(here.contains("saved activations (host)"));
}

TEST(Machine, LowersProgramsForItsTransport) {
  const deck::Config config = config_of({.pipeline = 2, .chunks = 2});
  const auto nccl = step_program(config, machine_of("cuda", "cublaslt", "cudnn", "nccl"));
  EXPECT_EQ(nccl.layout.transport, schedule::Transport::ordered_groups);
  const auto mpi = step_program(config, machine_of("cuda", "cublaslt", "cudnn", "mpi"));
  EXPECT_EQ(mpi.layout.transport, schedule::Transport::independent_channels);
  EXPECT_EQ(mpi, step_program(config, host_machine));
}

/// All of it together is the sum of what each part takes.
TEST(Machine, DeviceOverheadSumsItsParts) {
  const deck::Config config = narrow({.tensor = 2, .pipeline = 2});
  const auto a = architecture::describe(config.model);
  const Machine device = machine_of("cuda", "cublaslt", "cudnn", "mpi");
  const auto needs = training_needs(step_programs(config, host_machine));
  const auto on_device = plan_ranks(config, a, needs, device);
  const auto on_host = plan_ranks(config, a, needs, host_machine);
  ASSERT_EQ(on_device.size(), on_host.size());
  for (std::size_t r = 0; r < on_host.size(); ++r)
    EXPECT_EQ(device_total(on_device[r].memory) - device_total(on_host[r].memory), 33 * mebibyte);
}

}  // namespace
}  // namespace trireme::plan
