#include <trireme/base/check.hpp>
#include <trireme/plan/machine_file.hpp>

#include <gtest/gtest.h>

#include <string>

#include "plan/machines.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

namespace trireme::plan {
namespace {

using testing::expect_contains;
using testing::machine_file;
using testing::machine_of;

std::string mistakes_of(const std::string& content) {
  try {
    parse_machine(content, "m.toml");
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted:\n" << content;
  return "";
}

/// What errors say of a machine with these words.
std::string contradiction(const std::string& kind, const std::string& products,
                          const std::string& attention, const std::string& transport) {
  return mistakes_of(machine_file(kind, products, attention, transport));
}

std::string machine_file_with(const std::string& what, const std::string& by) {
  std::string content = machine_file("cuda", "cublaslt", "cudnn", "nccl");
  return content.replace(content.find(what), what.size(), by);
}

TEST(MachineFile, SetsTheDefaultsOfItsKind) {
  const Machine m = machine_of("cuda", "cublaslt", "cudnn", "nccl");
  EXPECT_EQ(m.name, "box");
  EXPECT_EQ(m.called(), "box (m.toml)");
  EXPECT_EQ(m.device, (Machine::Device{DeviceKind::cuda, Bytes{80} << 30}));
  EXPECT_EQ(m.node.devices, 8);
  EXPECT_EQ(m.software.products, ProductLibrary::cublaslt);
  EXPECT_EQ(m.software.attention, AttentionKind::cudnn);
  EXPECT_EQ(m.software.transport, TransportKind::nccl);
  EXPECT_TRUE(m.on_device() && m.own_memory && m.device_kernels);
  const Machine host = machine_of("host", "onednn", "portable", "mpi");
  EXPECT_FALSE(host.on_device() || host.own_memory || host.device_kernels);
}

TEST(MachineFile, SoftwareAndNodeAreOptional) {
  const Machine m =
      parse_machine("[machine]\nname = \"a\"\n[device]\nkind = \"hip\"\nmemory = 64e9\n", "m.toml");
  EXPECT_EQ(m.device.memory, 64000000000);
  EXPECT_EQ(m.node, Machine::Node{});
  EXPECT_EQ(m.software, Machine::Software{});
}

TEST(MachineFile, AcceptsSeveralNotationsOfMemory) {
  const auto memory = [](const std::string& written) {
    return parse_machine(machine_file_with("\"80 GiB\"", written), "m.toml").device.memory;
  };
  EXPECT_EQ(memory("80000000000"), 80000000000);
  EXPECT_EQ(memory("80e9"), 80000000000);
  EXPECT_EQ(memory("\"80GB\""), 80000000000);
  EXPECT_EQ(memory("\"81559 MiB\""), Bytes{81559} << 20);
  EXPECT_EQ(memory("\"1.5 TiB\""), Bytes{3} << 39);
  EXPECT_EQ(memory("\"64\""), 64);
  for (const char* wrong : {"0", "-1", "1.5", "\"80 Gib\"", "\"80  GiB\"", "\"GiB\"", "\"\"",
                            "\"inf GiB\"", "\"nan\"", "1e30", "\"9000000000 GiB\"", "true", "[1]"})
    expect_contains(
        mistakes_of(machine_file_with("\"80 GiB\"", wrong)),
        "m.toml:5:10: [device] memory: expected bytes above 0, such as 80000000000, 80e9 or "
        "\"80 GiB\", found ");
}

TEST(MachineFile, ReportsUnknownAndMissingKeys) {
  expect_contains(mistakes_of(machine_file_with("devices", "device")),
                  "m.toml:7:1: unknown key device in [node]; did you mean devices?");
  expect_contains(mistakes_of(machine_file_with("[node]", "[nodes]")),
                  "m.toml:6:2: unknown section [nodes]; did you mean [node]?");
  expect_contains(mistakes_of(machine_file_with("devices = 8", "products = \"onednn\"")),
                  "m.toml:7:1: unknown key products in [node]; it belongs to [software]");
  expect_contains(mistakes_of(machine_file_with("devices = 8", "zzzzzz = 8")),
                  "`trireme help machine` lists all keys");
  expect_contains(
      mistakes_of(machine_file_with("name = \"box\"", "")),
      "m.toml: [machine] name is missing: expected a non-empty string (name of the machine in "
      "reports)");
  const std::string empty = mistakes_of("[node]\ndevices = 4\n");
  expect_contains(empty, "3 mistakes in m.toml:");
  expect_contains(
      empty, "[device] kind is missing: expected one of \"host\", \"cuda\", \"hip\", \"sycl\"");
  expect_contains(empty, "[device] memory is missing");
}

TEST(MachineFile, RejectsValuesOutOfRange) {
  expect_contains(
      mistakes_of(machine_file_with("\"cuda\"", "\"gpu\"")),
      "m.toml:4:8: [device] kind: expected one of \"host\", \"cuda\", \"hip\", \"sycl\", "
      "found the string \"gpu\"");
  expect_contains(
      mistakes_of(machine_file_with("devices = 8", "devices = 0")),
      "m.toml:7:11: [node] devices: expected an integer from 1 to 1024, found the integer 0");
  expect_contains(
      mistakes_of(machine_file_with("\"cudnn\"", "\"auto\"")),
      "m.toml:10:13: [software] attention: expected one of \"portable\", \"tensor_cores\", "
      "\"cudnn\", found the string \"auto\"");
  expect_contains(mistakes_of(machine_file_with("\"nccl\"", "\"auto\"")),
                  "expected one of \"mpi\", \"nccl\", found the string \"auto\"");
}

TEST(MachineFile, ReportsContradictionsWithARemedy) {
  EXPECT_EQ(
      contradiction("host", "portable", "cudnn", "mpi"),
      "[software] attention = \"cudnn\" (m.toml:10) contradicts [device] kind = \"host\" "
      "(m.toml:4): these kernels run on NVIDIA devices only; choose attention = \"portable\"");
  EXPECT_EQ(contradiction("host", "onednn", "tensor_cores", "mpi"),
            "[software] attention = \"tensor_cores\" (m.toml:10) contradicts [device] kind = "
            "\"host\" (m.toml:4): these kernels run on NVIDIA devices only; choose attention = "
            "\"portable\"");
  EXPECT_EQ(contradiction("host", "portable", "portable", "nccl"),
            "[software] transport = \"nccl\" (m.toml:11) contradicts [device] kind = \"host\" "
            "(m.toml:4): NCCL and RCCL move messages between NVIDIA or AMD devices; choose "
            "transport = \"mpi\"");
  EXPECT_EQ(contradiction("host", "cublaslt", "portable", "mpi"),
            "[software] products = \"cublaslt\" (m.toml:9) contradicts [device] kind = \"host\" "
            "(m.toml:4): cuBLASLt runs on NVIDIA devices only; choose products = \"onednn\" or "
            "\"portable\"");
  EXPECT_EQ(contradiction("cuda", "onednn", "portable", "nccl"),
            "[software] products = \"onednn\" (m.toml:9) contradicts [device] kind = \"cuda\" "
            "(m.toml:4): Trireme calls oneDNN on hosts only; choose products = \"cublaslt\" or "
            "\"portable\"");
  EXPECT_EQ(contradiction("cuda", "portable", "cudnn", "nccl"),
            "[software] attention = \"cudnn\" (m.toml:10) contradicts [software] products = "
            "\"portable\" (m.toml:9): cuDNN shares the workspace of cuBLASLt; choose attention = "
            "\"tensor_cores\" or products = \"cublaslt\"");
  expect_contains(contradiction("sycl", "portable", "portable", "nccl"), "transport = \"mpi\"");
  expect_contains(contradiction("hip", "cublaslt", "tensor_cores", "nccl"),
                  "2 mistakes in m.toml:");
  EXPECT_NO_THROW(machine_of("hip", "portable", "portable", "nccl"));
  // A key that is wrong by itself is not held against others.
  EXPECT_EQ(mistakes_of(machine_file_with("\"cuda\"", "\"gpu\"")).find("contradicts"),
            std::string::npos);
}

TEST(MachineFile, ReportsAnUnreadableFile) {
  const auto message = [](const std::string& path) -> std::string {
    try {
      load_machine(path);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  const testing::TemporaryFolder folder;
  expect_contains(message("none.toml"), "none.toml: no such machine file (current folder: ");
  expect_contains(message(folder.file("")), "is a folder; give the path of a machine file");
  expect_contains(message(folder.write("empty.toml", " \n")),
                  "empty.toml is empty; `trireme help machine` lists all keys");
  expect_contains(message(folder.write("bad.toml", "[machine\n")), "bad.toml:1:");
  expect_contains(message(folder.write("line.toml", "[machine]\nname = \"\"\"a\"\"\"\n")),
                  "a machine file cannot contain multi-line strings");
}

TEST(MachineFile, DocumentedPageMatchesTheKeys) {
  const std::string page = testing::read_file(TRIREME_SOURCE_DIR "/docs/machine_keys.md");
  EXPECT_NE(page.find(machine_markdown()), std::string::npos)
      << "replace the tables by the output of: trireme help machine --markdown";
}

}  // namespace
}  // namespace trireme::plan
