#include <trireme/base/check.hpp>
#include <trireme/plan/machine_file.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "plan/machines.hpp"
#include "support/temporary_folder.hpp"

/// Values of machine files: speeds, links, the network and other programs.
namespace trireme::plan {
namespace {

/// A machine file of eight GPUs per node with further lines for each section.
struct Lines {
  std::string device, node, network, software;

  std::string content() const {
    return "[machine]\nname = \"box\"\n[device]\nkind = \"cuda\"\nmemory = \"80 GiB\"\n" + device +
           "[node]\ndevices = 8\n" + node + "[network]\n" + network + "[software]\n" + software;
  }
  Machine machine() const { return parse_machine(content(), "m.toml"); }
  std::string mistakes() const {
    try {
      machine();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST(MachineValues, StoreEveryKey) {
  const Machine m =
      Lines{
          "peak_fp64 = 67e12\npeak_fp32 = 67e12\npeak_tf32 = 494e12\npeak_bf16 = 989e12\n"
          "peak_fp16 = 988e12\npeak_fp8 = 1979e12\nbandwidth = 3350e9\nmultiprocessors = 132\n"
          "product_efficiency = 0.7\nmemory_efficiency = 0.9\nattention_efficiency = 0.4\n"
          "tile_overhead = 100\nlaunch = 3e-6\n",
          "processors = 4\nlink_bandwidth = 450e9\nlink_efficiency = 0.75\nlink_latency = 5e-6\n",
          "bandwidth = 400e9\nefficiency = 0.85\ngradient_efficiency = 0.55\nlatency = 2e-5\n",
          "name = \"Other\"\nsecond_axis = \"data\"\nfused_attention = false\n"
          "scatter_gather = false\ngradient_bytes = 2\ntensor_overlap = 0.1\n"
          "gradient_overlap = 0.2\ngather_overlap = 0.7\npipeline_overlap = 0.3\nhost_per_layer = "
          "0.001\n"
          "optimizer_bytes = 40\nactivation_ratio = 1.5\nlogit_bytes = 10\n"
          "fused_accumulation = false\nrecomputes_unread = true\ntraffic_ratio = 1.3\n"
          "keeps_gathered = true\nlogit_traffic = 52\nreserve = \"1 GB\"\n"
          "expert_imbalance = 1.25\nexpert_dispatch = \"copies\"\n"
          "grouped_products = true\nsums_each_pass = true\n"}
          .machine();
  Machine::Device device;
  device.kind = DeviceKind::cuda;
  device.memory = Bytes{80} << 30;
  device.peak_fp64 = device.peak_fp32 = 67e12;
  device.peak_tf32 = 494e12;
  device.peak_bf16 = 989e12;
  device.peak_fp16 = 988e12;
  device.peak_fp8 = 1979e12;
  device.bandwidth = 3350e9;
  device.multiprocessors = 132;
  device.product_efficiency = 0.7;
  device.memory_efficiency = 0.9;
  device.attention_efficiency = 0.4;
  device.tile_overhead = 100;
  device.launch = 3e-6;
  EXPECT_EQ(m.device, device);
  Machine::Node node;
  node.devices = 8;
  node.processors = 4;
  node.link_bandwidth = 450e9;
  node.link_efficiency = 0.75;
  node.link_latency = 5e-6;
  EXPECT_EQ(m.node, node);
  Machine::Network network;
  network.bandwidth = 400e9;
  network.efficiency = 0.85;
  network.gradient_efficiency = 0.55;
  network.latency = 2e-5;
  EXPECT_EQ(m.network, network);
  Machine::Software software;
  software.name = "Other";
  software.second_axis = SecondAxis::data;
  software.fused_attention = software.scatter_gather = false;
  software.gradient_bytes = 2;
  software.tensor_overlap = 0.1;
  software.gradient_overlap = 0.2;
  software.gather_overlap = 0.7;
  software.pipeline_overlap = 0.3;
  software.host_per_layer = 0.001;
  software.optimizer_bytes = 40;
  software.activation_ratio = 1.5;
  software.logit_bytes = 10;
  software.fused_accumulation = false;
  software.recomputes_unread = software.keeps_gathered = true;
  software.traffic_ratio = 1.3;
  software.logit_traffic = 52;
  software.reserve = 1000000000;
  software.expert_imbalance = 1.25;
  software.expert_dispatch = ExpertDispatch::copies;
  software.grouped_products = software.sums_each_pass = true;
  EXPECT_EQ(m.software, software);
}

TEST(MachineValues, RejectValuesOutsidePhysicalBounds) {
  struct Case {
    const char* section;
    const char* key;
    std::vector<const char*> accepted, refused;
  };
  const std::vector<const char*> shares{"0.01", "1"}, not_shares{"0", "1.01", "-0.5", "nan"};
  const std::vector<const char*> overlaps{"0", "1"}, not_overlaps{"-0.1", "1.1"};
  const std::vector<const char*> times{"0", "0.5", "1"}, not_times{"-1e-6", "1.5", "3.0e0", "inf"};
  const std::vector<const char*> speeds{"1e6", "1e14"}, not_speeds{"0", "400", "2e14", "-1e9"};
  const std::vector<const char*> peaks{"1e6", "1e17"}, not_peaks{"0", "989", "2e17"};
  const Case cases[] = {
      {"device", "peak_fp64", peaks, not_peaks},
      {"device", "peak_fp32", peaks, not_peaks},
      {"device", "peak_tf32", peaks, not_peaks},
      {"device", "peak_bf16", peaks, not_peaks},
      {"device", "peak_fp16", peaks, not_peaks},
      {"device", "peak_fp8", peaks, not_peaks},
      {"device", "bandwidth", speeds, not_speeds},
      {"device", "multiprocessors", {"1", "1048576"}, {"0", "1048577", "1.5"}},
      {"device", "product_efficiency", shares, not_shares},
      {"device", "memory_efficiency", shares, not_shares},
      {"device", "attention_efficiency", shares, not_shares},
      {"device", "tile_overhead", {"0", "1e5"}, {"-1", "2e5"}},
      {"device", "launch", times, not_times},
      {"node", "processors", {"1", "8"}, {"0", "-1", "1025"}},
      {"node", "link_bandwidth", speeds, not_speeds},
      {"node", "link_efficiency", shares, not_shares},
      {"node", "link_latency", times, not_times},
      {"network", "bandwidth", speeds, not_speeds},
      {"network", "efficiency", shares, not_shares},
      {"network", "gradient_efficiency", shares, not_shares},
      {"network", "latency", times, not_times},
      {"software", "second_axis", {"\"pipeline\""}, {"\"tensor\"", "1"}},
      {"software", "fused_attention", {"true"}, {"1", "\"yes\""}},
      {"software", "scatter_gather", {"true"}, {"0", "\"no\""}},
      {"software", "fused_accumulation", {"true"}, {"1", "\"yes\""}},
      {"software", "recomputes_unread", {"true"}, {"1", "\"yes\""}},
      {"software", "keeps_gathered", {"true"}, {"1", "\"yes\""}},
      {"software", "traffic_ratio", {"1", "4"}, {"0.9", "4.1"}},
      {"software", "logit_traffic", {"0", "1000"}, {"-1", "1001"}},
      {"software", "gradient_bytes", {"1", "8"}, {"0", "9", "2.0"}},
      {"software", "tensor_overlap", overlaps, not_overlaps},
      {"software", "gradient_overlap", overlaps, not_overlaps},
      {"software", "gather_overlap", overlaps, not_overlaps},
      {"software", "pipeline_overlap", overlaps, not_overlaps},
      {"software", "host_per_layer", times, not_times},
      {"software", "optimizer_bytes", {"0", "1000"}, {"-1", "1001"}},
      {"software", "activation_ratio", {"0.01", "100"}, {"0", "101"}},
      {"software", "logit_bytes", {"0", "1000"}, {"-1", "1001"}},
      {"software", "reserve", {"0", "\"1 GiB\""}, {"-1", "1.5", "\"1 gib\""}},
  };
  for (const Case& c : cases) {
    const std::string section = c.section;
    const auto mistakes = [&](const char* value) {
      Lines lines;
      (section == "device"    ? lines.device
       : section == "node"    ? lines.node
       : section == "network" ? lines.network
                              : lines.software) = std::string(c.key) + " = " + value + "\n";
      return lines.mistakes();
    };
    for (const char* value : c.accepted)
      EXPECT_EQ(mistakes(value), "accepted") << c.key << " = " << value;
    for (const char* value : c.refused)
      EXPECT_NE(mistakes(value).find("[" + section + "] " + c.key + ": expected "),
                std::string::npos)
          << c.key << " = " << value << ": " << mistakes(value);
  }
}

TEST(MachineValues, ErrorsShowTheBounds) {
  EXPECT_NE((Lines{"bandwidth = 3350\n", "", "", ""}.mistakes())
                .find("m.toml:6:13: [device] bandwidth: expected a number of at least 1e+06 and of "
                      "at most 1e+14, found the integer 3350"),
            std::string::npos);
}

TEST(MachineValues, ReportContradictionsWithARemedy) {
  EXPECT_EQ((Lines{"", "processors = 16\n", "", ""}.mistakes()),
            "[node] processors = 16 (m.toml:8) contradicts [node] devices = 8 (m.toml:7): a node "
            "runs one rank per device; set processors to at most 8, or remove it");
  EXPECT_EQ((Lines{"", "", "", "reserve = \"80 GiB\"\n"}.mistakes()),
            "[software] reserve = 85899345920 (m.toml:10) contradicts [device] memory = "
            "85899345920 (m.toml:5): nothing is left for a plan; set reserve to a part of the "
            "memory");
  EXPECT_EQ((Lines{"bandwidth = 3350e9\n", "link_bandwidth = 3600e9\n", "", ""}.mistakes()),
            "[node] link_bandwidth = 3.6e+12 (m.toml:9) contradicts [device] bandwidth = "
            "3.35e+12 (m.toml:6): messages are read from the device's memory; give both in "
            "bytes/s, links in one direction");
  EXPECT_EQ((Lines{"bandwidth = 50e9\n", "", "bandwidth = 3200e9\n", ""}.mistakes()),
            "[network] bandwidth = 3.2e+12 (m.toml:10) contradicts [device] bandwidth = 5e+10 "
            "(m.toml:6): messages are read from the memory of 8 devices; give both in bytes/s, "
            "links in one direction");
  EXPECT_EQ((Lines{"", "", "",
                   "name = \"Other\"\nattention = \"tensor_cores\"\n"
                   "fused_attention = false\n"}
                 .mistakes()),
            "[software] fused_attention = false (m.toml:12) contradicts [software] attention = "
            "\"tensor_cores\" (m.toml:11): these kernels are fused; choose attention = "
            "\"portable\" or fused_attention = true");
  EXPECT_EQ((Lines{"", "", "", "second_axis = \"data\"\n"}.mistakes()),
            "[software] second_axis = \"data\" (m.toml:10) contradicts [software] name = "
            "\"Trireme\" (default): Trireme numbers the ranks of a pipeline next to those of a "
            "tensor group; set name to the program's name, or remove the key");
  EXPECT_NE((Lines{"", "", "", "fused_attention = false\nscatter_gather = false\n"}.mistakes())
                .find("2 mistakes in m.toml:"),
            std::string::npos);
}

TEST(MachineValues, ANetworkNeedsNodes) {
  const std::string content =
      "[machine]\nname = \"a\"\n[device]\nkind = \"cuda\"\nmemory = 80e9\n"
      "[network]\nbandwidth = 400e9\n";
  try {
    parse_machine(content, "m.toml");
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what(),
              std::string("[network] bandwidth = 4e+11 (m.toml:7) contradicts [node] devices "
                          "(unknown): without it, ranks are not assigned to nodes; set [node] "
                          "devices"));
  }
}

TEST(MachineValues, HostLinksMayBeFasterThanMemory) {
  EXPECT_NO_THROW(
      parse_machine("[machine]\nname = \"a\"\n[device]\nkind = \"host\"\nmemory = 8e9\n"
                    "bandwidth = 10e9\n[node]\ndevices = 2\nlink_bandwidth = 20e9\n",
                    "m.toml"));
}

TEST(MachineToml, ReadsBackToTheSameMachine) {
  for (const auto& entry :
       std::filesystem::directory_iterator(TRIREME_SOURCE_DIR "/inputs/machines")) {
    Machine m = load_machine(entry.path().string());
    // Values without a short decimal form.
    m.device.product_efficiency = 2.0 / 3.0;
    m.device.launch = std::nextafter(3e-6, 1.0);
    m.name = "a \"b\" \\ c";
    const std::string written = machine_toml(m);
    EXPECT_EQ(parse_machine(written, m.file), m) << written;
    EXPECT_EQ(machine_toml(parse_machine(written, m.file)), written);
  }
}

TEST(MachineToml, OmitsDefaultsAndShowsComments) {
  const Machine m = Lines{"launch = 3e-6\n", "", "", "tensor_overlap = 0\n"}.machine();
  EXPECT_EQ(machine_toml(m, {{"device.launch", "measured"}, {"node.devices", "ranks of the run"}}),
            "[machine]\nname = \"box\"\n\n"
            "[device]\nkind = \"cuda\"\nmemory = 85899345920\nlaunch = 3e-6  # measured\n\n"
            "[node]\ndevices = 8  # ranks of the run\n");
}

TEST(MachineToml, RejectsAValueThatNoFileCanHold) {
  Machine m = testing::installation(DeviceKind::host);
  try {
    machine_toml(m);
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what(), std::string("this installation cannot be described by a machine file: "
                                        "[device] memory: expected bytes above 0, such as "
                                        "80000000000, 80e9 or \"80 GiB\", found the integer 0"));
  }
}

/// Peaks of products in use, bandwidths and links, so that `check` predicts times.
TEST(MachineExamples, SufficeToPredictTimes) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(TRIREME_SOURCE_DIR "/inputs/machines")) {
    const Machine m = load_machine(entry.path().string());
    for (const DType type : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
      deck::PrecisionConfig precision;
      precision.compute = type;
      EXPECT_EQ(m.time_mistake(precision, m.node.devices), "") << entry.path();
      EXPECT_EQ(m.time_mistake(precision, 2 * m.node.devices),
                m.name == "h100_nanotron" ? "[network] bandwidth" : "")
          << entry.path();
    }
    EXPECT_LT(m.software.reserve, m.device.memory);
    ++files;
  }
  EXPECT_EQ(files, 8);
}

}  // namespace
}  // namespace trireme::plan
