#include <commands/training_runs.hpp>
#include <trireme/commands/doctor.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

using namespace trireme::testing;

/// `n` ranks of one node, each with a core of its own and no limits.
std::vector<RankFacts> healthy(std::size_t n) {
  std::vector<RankFacts> ranks(n);
  for (std::size_t r = 0; r < n; ++r) {
    ranks[r].node = "a";
    ranks[r].cores = std::string(r, '0') + "1";
    ranks[r].core_file = 0;
    ranks[r].node_memory = Bytes{64} << 30;
    ranks[r].shared_memory = Bytes{32} << 30;
    ranks[r].clock = 2e9;
    ranks[r].built = 1e9;
    ranks[r].hdf5_headers = ranks[r].hdf5_library = "1.14.6";
  }
  return ranks;
}

/// The finding of one check.
Finding found(const std::vector<RankFacts>& ranks, const std::string& check) {
  for (const Finding& finding : diagnose(ranks, "runs"))
    if (finding.check == check) return finding;
  return {Health::failure, check, "no such finding", ""};
}

TEST(Doctor, HealthyRanksGetNoAdvice) {
  for (const Finding& finding : diagnose(healthy(3), "runs")) {
    EXPECT_EQ(finding.health, Health::ok) << finding.check << ": " << finding.value;
    EXPECT_EQ(finding.advice, "") << finding.check;
  }
}

TEST(Doctor, ReportsEachFaultWithValueAndAdvice) {
  struct Case {
    std::function<void(RankFacts&)> fault;  ///< of rank 1 of 3
    const char* check;
    Health health;
    const char* value;
  };
  const Health warning = Health::warning;
  const Health failure = Health::failure;
  for (const Case& c : std::vector<Case>{
           {[](RankFacts& r) { r.cores = "1"; }, "cores", warning, "ranks 0, 1 share core 0 of a"},
           {[](RankFacts& r) { r.cores = "0011"; }, "cores", warning, "and 1 (cores 2-3)"},
           {[](RankFacts& r) { r.node = "b"; }, "nodes", warning, "1 to 2 ranks per node"},
           {[](RankFacts& r) { r.folder.files = "denied"; }, "files", failure,
            "rank 1 on a: denied"},
           {[](RankFacts& r) { r.folder.links = "none"; }, "links", failure, "none"},
           {[](RankFacts& r) { r.folder.locks = "no locks"; }, "locks", warning, "no locks"},
           {[](RankFacts& r) { r.folder.shared = "missing"; }, "shared files", failure, "missing"},
           {[](RankFacts& r) { r.folder.hdf5 = "broken"; }, "HDF5", failure, "broken"},
           {[](RankFacts& r) { r.hdf5_library = "1.10.8"; }, "HDF5", failure,
            "built for version 1.14.6, but version 1.10.8"},
           {[](RankFacts& r) { r.clock = 5e8; }, "clock", failure, "before the program was built"},
           {[](RankFacts& r) { r.clock_offset = -90; }, "clock", warning, "differ by 90.0 s"},
           {[](RankFacts& r) { r.address_space = Bytes{4} << 30; }, "address space", warning,
            "4.00 GiB"},
           {[](RankFacts& r) { r.open_files = 256; }, "open files", warning, "256"},
           {[](RankFacts& r) { r.stack = 1 << 20; }, "stack", warning, "1.00 MiB"}}) {
    SCOPED_TRACE(c.check);
    auto ranks = healthy(3);
    c.fault(ranks[1]);
    const Finding finding = found(ranks, c.check);
    EXPECT_EQ(finding.health, c.health);
    EXPECT_NE(finding.value.find(c.value), std::string::npos) << finding.value;
    EXPECT_NE(finding.advice, "");
  }
}

TEST(Doctor, RanksOfANodeShareControlGroupLimits) {
  auto ranks = healthy(3);
  for (RankFacts& r : ranks) r.memory_limit = Bytes{6} << 30;
  EXPECT_NE(found(ranks, "memory").value.find("2.00 GiB per rank"), std::string::npos);
  EXPECT_EQ(found(ranks, "memory").health, Health::ok);
  for (RankFacts& r : ranks) r.memory_limit = Bytes{1} << 30;
  EXPECT_EQ(found(ranks, "memory").health, Health::warning);
}

TEST(Doctor, DetectsSharedBusyAndUnequalDevices) {
  auto ranks = healthy(2);
  for (std::size_t r = 0; r < 2; ++r) {
    ranks[r].device = "H100";
    ranks[r].device_id = std::to_string(r);
    ranks[r].device_memory = ranks[r].device_free = Bytes{80} << 30;
    ranks[r].nccl = "NCCL 2.28.3";
  }
  EXPECT_EQ(found(ranks, "devices").health, Health::ok);
  EXPECT_EQ(found(ranks, "NCCL").health, Health::ok);
  ranks[1].device_free = Bytes{20} << 30;
  EXPECT_EQ(found(ranks, "devices").health, Health::warning);
  ranks[1].device = "A100";
  EXPECT_NE(found(ranks, "devices").value.find("A100"), std::string::npos);
  ranks[1].device_id = "0";
  EXPECT_EQ(found(ranks, "devices").health, Health::failure);
  ranks[0].nccl_error = "cannot load NCCL";
  EXPECT_EQ(found(ranks, "NCCL").health, Health::failure);
}

TEST(Doctor, ReadsMemoryLimitsOfBothControlGroupVersions) {
  const TemporaryFolder folder;
  const std::string root = folder.path().string();
  std::filesystem::create_directories(root + "/job/step");
  std::filesystem::create_directories(root + "/memory/slurm/job");
  folder.write("job/memory.max", "4096\n");
  folder.write("job/step/memory.max", "max\n");
  folder.write("memory/slurm/memory.limit_in_bytes", "9223372036854771712\n");
  folder.write("memory/slurm/job/memory.limit_in_bytes", "8192\n");
  EXPECT_EQ(group_memory_limit("0::/job/step\n", root), 4096) << "of the outer group";
  EXPECT_EQ(group_memory_limit("5:cpu,memory:/slurm/job\n4:pids:/\n", root), 8192);
  EXPECT_EQ(group_memory_limit("5:memory:/slurm\n", root), -1) << "a number that means no limit";
  EXPECT_EQ(group_memory_limit("0::/elsewhere\n", root), -1);
}

TEST(Doctor, ListsCoresAsRanges) {
  EXPECT_EQ(core_list("1101011"), "0-1,3,5-6");
  EXPECT_EQ(core_list(""), "");
}

TEST(Doctor, FactsReadBackOnAnotherRank) {
  RankFacts facts = healthy(1).front();
  facts.folder.files = "\xff is not UTF-8";
  facts.clock_offset = 0.25;
  const RankFacts received = unpacked_facts(packed(facts));
  EXPECT_EQ(received.cores, "1");
  EXPECT_EQ(received.clock_offset, 0.25);
  EXPECT_NE(received.folder.files, "");
}

/// The status of a check in the JSON that a command has printed.
std::string status_of(const TemporaryFolder& folder, const std::string& check) {
  const auto json = nlohmann::json::parse(read_file(folder.file("out")));
  for (const auto& one : json.at("checks"))
    if (one.at("check") == check) return one.at("status");
  return "not checked";
}

TEST(DoctorCommand, PrintsOneLinePerCheckAndLeavesNoFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "runs");
  EXPECT_EQ(shell(folder, "trireme doctor --folder runs"), 0);
  for (const char* check : {"program", "launcher", "files", "HDF5", "clock", "memory", "stack"})
    expect_output(folder, std::string("       ") + check + " ");
  expect_output(folder, "0 failures, ");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() / "runs"));
}

TEST(DoctorCommand, ChecksTwoRanksTogether) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell(folder, TRIREME_MPIEXEC " -n 2 trireme doctor --json report.json"), 0);
  expect_output(folder, "all ranks see the first rank's files");
  expect_output(folder, "2 ranks");
  const auto json = nlohmann::json::parse(read_file(folder.file("report.json")));
  EXPECT_EQ(json.at("ranks"), 2);
  EXPECT_NE(json.at("status"), "failure");
}

TEST(DoctorCommand, UnwritableFolderIsAFailure) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell(folder, "trireme doctor --folder /proc --json -"), 1);
  EXPECT_EQ(status_of(folder, "files"), "failure");
  EXPECT_EQ(shell(folder, "trireme doctor --folder missing --json -"), 1);
  EXPECT_EQ(status_of(folder, "files"), "failure");
  EXPECT_EQ(shell(folder, TRIREME_MPIEXEC " -n 2 trireme doctor --folder missing --json -"), 1);
  EXPECT_EQ(status_of(folder, "files"), "failure");
  if (::getuid() == 0) return;  // may write everywhere
  EXPECT_EQ(
      shell(folder, "mkdir closed; chmod a-w closed; trireme doctor --folder closed --json -"), 1);
  EXPECT_EQ(status_of(folder, "files"), "failure");
}

TEST(DoctorCommand, SmallLimitsAreWarnings) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell(folder, "ulimit -n 200; ulimit -s 1024; trireme doctor --json -"), 0);
  EXPECT_EQ(status_of(folder, "open files"), "warning");
  EXPECT_EQ(status_of(folder, "stack"), "warning");
#ifndef TRIREME_ON_DEVICE
  EXPECT_EQ(shell(folder, "ulimit -v 60000000; trireme doctor --json -"), 0);
  EXPECT_EQ(status_of(folder, "address space"), "warning");
#endif
}

TEST(DoctorCommand, OneProcessReportsALauncherOfAnotherMpi) {
  const TemporaryFolder folder;
  const std::string foreign = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=";
  EXPECT_EQ(shell(folder, foreign + "0 trireme doctor"), 1);
  expect_output(folder, "failure  launcher");
  expect_output(folder, "Open MPI's mpiexec started 2 processes");
  EXPECT_EQ(shell(folder, foreign + "1 trireme doctor"), 1);
  EXPECT_EQ(read_file(folder.file("out")), "");
  EXPECT_EQ(shell(folder, "SLURM_NTASKS=4 trireme doctor --json -"), 0);
  EXPECT_EQ(status_of(folder, "launcher"), "warning");
  EXPECT_EQ(shell(folder, "SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_PROCID=0 trireme doctor --json -"),
            1);
  EXPECT_EQ(status_of(folder, "launcher"), "failure");
}

}  // namespace
}  // namespace trireme::commands
