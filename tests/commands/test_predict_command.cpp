#include <trireme/base/text.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "support/shell.hpp"

/// `trireme predict` and tools/calibrate, which read measured steps.
namespace trireme::commands {
namespace {

using namespace trireme::testing;

const std::string selene = TRIREME_SOURCE_DIR "/inputs/machines/selene.toml";
const std::string columns_line =
    "model,layers,hidden,heads,sequence,vocabulary,tensor,pipeline,data,schedule,chunks,micro,"
    "global_batch,recompute,step_ms\n";
const std::string good_row = "gpt_a,4,256,4,128,1000,2,2,4,1f1b,1,2,32,none,100\n";

class Predict : public ::testing::Test {
 protected:
  int predict(const std::string& rows, const std::string& more = "precision.compute=fp16",
              const std::string& machine = selene) {
    folder_.write("s.csv", rows);
    return shell(folder_, text("trireme predict s.csv --machine '", machine, "' ", more));
  }
  std::string out() const { return read_file(folder_.file("out")); }
  std::string err() const { return read_file(folder_.file("err")); }

  /// The row with another value in the n-th cell.
  static std::string with(int cell, const std::string& value) {
    std::size_t begin = 0;
    for (int i = 0; i < cell; ++i) begin = good_row.find(',', begin) + 1;
    return good_row.substr(0, begin) + value +
           good_row.substr(good_row.find_first_of(",\n", begin));
  }
  /// The text of the only error, which is about the row.
  std::string mistake(const std::string& row, const std::string& more = "precision.compute=fp16") {
    EXPECT_EQ(predict(columns_line + good_row + row, more), 2) << row;
    EXPECT_EQ(out(), "");
    const std::string message = err(), begin = "trireme: error: ";
    EXPECT_EQ(message.find(begin), 0u) << message;
    EXPECT_EQ(message.find('\n'), message.size() - 1) << message;
    return message.substr(begin.size(), message.size() - begin.size() - 1);
  }

  TemporaryFolder folder_;
};

TEST_F(Predict, ComparesRowsWithTheirPredictions) {
  ASSERT_EQ(predict("# measured by hand\n" + columns_line + "\n" + good_row + "\n" + good_row), 0)
      << err();
  const std::string printed = out();
  EXPECT_EQ(printed.find("line  model  tensor  pipeline  data  micro  measured  predicted  "), 0u);
  EXPECT_NE(printed.find("\n4     gpt_a       2         2     4      2     0.100  "),
            std::string::npos)
      << printed;
  EXPECT_NE(printed.find("\n6     gpt_a  "), std::string::npos);
  expect_output(folder_, "\n\nabsolute deviation of time: mean ");
  EXPECT_EQ(printed.find("memory"), std::string::npos) << "no row has it";
}

TEST_F(Predict, JsonIncludesMeasuredMemory) {
  std::string header = columns_line;
  header.insert(header.size() - 1, ",memory_gb,zero_stage");
  std::string row = good_row;
  row.insert(row.size() - 1, ",1.5,1");
  ASSERT_EQ(predict(header + row, "precision.compute=fp16 --json"), 0) << err();
  const auto predicted = nlohmann::json::parse(out());
  ASSERT_EQ(predicted.size(), 1u);
  EXPECT_EQ(predicted[0]["line"], 2);
  EXPECT_EQ(predicted[0]["model"], "gpt_a");
  EXPECT_EQ(predicted[0]["measured_seconds"], 0.1);
  EXPECT_EQ(predicted[0]["measured_bytes"], 1.5e9);
  const double seconds = predicted[0]["predicted_seconds"];
  EXPECT_GT(seconds, 0);
  // 1 GB of the reserve of this machine, and weights, gradients and state.
  EXPECT_GT(predicted[0]["predicted_bytes"], 1e9);
  EXPECT_LT(predicted[0]["predicted_bytes"], 1.2e9);
  ASSERT_EQ(predict(header + row, "precision.compute=fp16 --json --estimate"), 0) << err();
  const double estimate = nlohmann::json::parse(out())[0]["predicted_seconds"];
  EXPECT_NEAR(estimate, seconds, 0.05 * seconds);
  EXPECT_NE(estimate, seconds) << "a formula";
  std::string whole = row;
  whole.replace(whole.find(",1.5,1"), 6, ",1.5,0");
  ASSERT_EQ(predict(header + whole, "precision.compute=fp16 --json"), 0) << err();
  EXPECT_GT(nlohmann::json::parse(out())[0]["predicted_bytes"], predicted[0]["predicted_bytes"]);
}

TEST_F(Predict, ReadsDeckKeysFromColumnsOrArguments) {
  std::string header = columns_line, row = good_row;
  header.insert(header.size() - 1, ",model.layers");
  row.insert(row.size() - 1, ",8");
  const auto seconds = [&](const std::string& rows, const std::string& more = "") {
    EXPECT_EQ(predict(rows, "precision.compute=fp16 --json " + more), 0) << err();
    return static_cast<double>(nlohmann::json::parse(out())[0]["predicted_seconds"]);
  };
  const double four = seconds(columns_line + good_row);
  const double eight = seconds(header + row);
  EXPECT_GT(eight, 1.2 * four);
  EXPECT_EQ(seconds(columns_line + good_row, "model.layers=8"), eight);
  EXPECT_EQ(seconds(header + row, "model.layers=4"), four) << "arguments count more";
}

TEST_F(Predict, ReportsTheRowOfAMistake) {
  EXPECT_EQ(mistake("gpt_a,4,256\n"), "s.csv:3: 3 cells, but the first line names 15 columns");
  EXPECT_EQ(mistake(with(14, "100,5")), "s.csv:3: 16 cells, but the first line names 15 columns");
  EXPECT_EQ(mistake(with(2, "")), "s.csv:3: hidden is missing");
  for (const char* value : {"", "fast", "0", "-1", "inf", "nan", "100 ms"})
    EXPECT_EQ(mistake(with(14, value)),
              text("s.csv:3: step_ms: expected a number above 0, found \"", value, "\""));
  EXPECT_EQ(mistake(with(2, "wide")),
            "s.csv:3: model.hidden=wide: expected an integer from 1 to 16777216, found \"wide\"");
  EXPECT_EQ(mistake(with(9, "2f2b")).find("s.csv:3: parallel.schedule=2f2b: expected one of "), 0u);
  EXPECT_EQ(mistake(with(2, "250"))
                .find("[model] heads = 4 (s.csv:3) does not divide [model] "
                      "hidden = 250 (s.csv:3); "),
            0u);
  EXPECT_EQ(mistake(with(2, "256"), "precision.compute=fp16 model.hidden=250")
                .find("[model] heads = 4 (s.csv:2) does not divide [model] hidden = 250 (command "
                      "line); "),
            0u);
}

TEST_F(Predict, ReportsTheRowOfAnInvalidLayout) {
  EXPECT_EQ(mistake(with(12, "30")).find("[batch] global = 30 (s.csv:3) is not a multiple of "),
            0u);
  const std::string heads = mistake(with(6, "8"));
  EXPECT_NE(heads.find("[parallel] tensor = 8 (s.csv:3)"), std::string::npos) << heads;
  const std::string chunks = mistake(with(10, "2"));
  EXPECT_NE(chunks.find("[parallel] chunks = 2 (s.csv:3)"), std::string::npos) << chunks;
}

TEST_F(Predict, RejectsInvalidFiles) {
  for (const char* empty : {"", "\n", "# none\n"}) {
    EXPECT_EQ(predict(empty), 2);
    expect_error(folder_, "s.csv has no rows; its first line names the columns");
  }
  EXPECT_EQ(predict(columns_line), 2);
  expect_error(folder_, "s.csv has no rows");
  EXPECT_EQ(predict("layers,hidden\n4,256\n"), 2);
  expect_error(folder_, "s.csv:2: heads is missing");
  EXPECT_EQ(predict("model.hiden,layers\n5,4\n"), 2);
  EXPECT_EQ(shell(folder_, text("trireme predict none.csv --machine '", selene, "'")), 2);
  expect_error(folder_, "none.csv: no such file");
  std::string header = columns_line, row = good_row;
  header.insert(header.size() - 1, ",model.hiden");
  row.insert(row.size() - 1, ",5");
  EXPECT_EQ(predict(header + row), 2);
  expect_error(folder_,
               "s.csv:2: model.hiden=5: unknown key hiden in [model]; did you mean hidden?");
  EXPECT_EQ(predict(columns_line + good_row, "model.layers=many"), 2);
  expect_error(folder_, "command line: model.layers=many: expected an integer");
}

TEST_F(Predict, NamesMissingSpeedsOfTheMachine) {
  folder_.write("bare.toml",
                "[machine]\nname = \"bare\"\n[device]\nkind = \"cuda\"\nmemory = 80e9\n");
  EXPECT_EQ(predict(columns_line + good_row, "precision.compute=fp16", "bare.toml"), 2);
  expect_error(folder_, "bare.toml does not set [device] peak_fp16, [device] bandwidth, ");
  EXPECT_EQ(predict(columns_line + good_row, "", "none.toml"), 2);
  expect_error(folder_, "none.toml: no such machine file");
}

/// A machine of one node, and steps on it as long as it predicts.
class Calibrate : public Predict {
 protected:
  static std::string machine(double product, double memory) {
    return text(
        "[machine]\nname = \"node\"\n[device]\nkind = \"cuda\"\nmemory = 80e9\n"
        "peak_bf16 = 300e12\nbandwidth = 2e12\nmultiprocessors = 100\n"
        "product_efficiency = ",
        product, "  # fitted\nmemory_efficiency = ", memory,
        "\nattention_efficiency = 0.5\nlaunch = 3e-6\n[node]\ndevices = 8\n"
        "link_bandwidth = 300e9\n");
  }
  /// Writes steps.csv with the times that node.toml predicts.
  void write_steps() {
    std::string rows =
        "model,layers,hidden,heads,sequence,vocabulary,tensor,pipeline,data,micro,"
        "global_batch,recompute";
    std::vector<std::string> steps{"gpt_a,8,1024,16,1024,32000,1,1,1,4,16,none",
                                   "gpt_b,8,4096,32,2048,32000,2,1,4,2,32,full",
                                   "llama_d,8,2048,16,4096,32000,4,1,2,1,8,selective"};
    std::string unknown = rows + ",step_ms\n";
    for (const std::string& step : steps) unknown += step + ",1\n";
    ASSERT_EQ(predict(unknown, "precision.compute=bf16 --json", "node.toml"), 0) << err();
    const auto predicted = nlohmann::json::parse(out());
    rows += ",step_ms\n";
    for (std::size_t i = 0; i < steps.size(); ++i)
      rows +=
          text(steps[i], ",", 1e3 * static_cast<double>(predicted[i]["predicted_seconds"]), "\n");
    folder_.write("steps.csv", rows);
  }
  int calibrate(const std::string& arguments) {
    return shell(folder_,
                 "'" TRIREME_PYTHON "' -B '" TRIREME_SOURCE_DIR "/tools/calibrate' " + arguments);
  }
  double printed(const std::string& key) const {
    const std::string all = out();
    const std::size_t at = all.find(key + " = ");
    return at == std::string::npos ? NAN : std::stod(all.substr(at + key.size() + 3));
  }
};

TEST_F(Calibrate, RecoversTheValuesOfSyntheticSteps) {
  folder_.write("node.toml", machine(0.7, 0.8));
  write_steps();
  folder_.write("start.toml", machine(0.55, 0.9));
  ASSERT_EQ(calibrate("steps.csv start.toml --keys device.product_efficiency,"
                      "device.memory_efficiency --steps 40 -o fitted --bin '" TRIREME_BINARY_DIR
                      "/bin' precision.compute=bf16"),
            0)
      << err();
  EXPECT_NEAR(printed("device.product_efficiency"), 0.7, 0.007);
  EXPECT_NEAR(printed("device.memory_efficiency"), 0.8, 0.016);
  expect_output(folder_, "before steps.csv: mean deviation ");
  const std::size_t after = out().find("after  steps.csv: mean deviation ");
  ASSERT_NE(after, std::string::npos) << out();
  EXPECT_LT(std::stod(out().substr(after + 33)), 0.5);
  EXPECT_EQ(read_file(folder_.file("start.toml")), machine(0.55, 0.9));
  const std::string fitted = read_file(folder_.file("fitted/start.toml"));
  EXPECT_NE(fitted.find("  # fitted\n"), std::string::npos) << "comments stay";
  EXPECT_NE(fitted.find("\nattention_efficiency = 0.5\n"), std::string::npos);
  ASSERT_EQ(shell(folder_,
                  "trireme predict steps.csv --machine fitted/start.toml "
                  "precision.compute=bf16"),
            0)
      << err();
}

TEST_F(Calibrate, KeepsValuesWithinTheirBounds) {
  folder_.write("node.toml", machine(0.3, 0.8));  // no product of a real machine is that slow
  write_steps();
  folder_.write("start.toml", machine(0.6, 0.8));
  ASSERT_EQ(calibrate("steps.csv start.toml --keys device.product_efficiency --steps 12 "
                      "precision.compute=bf16"),
            0)
      << err();
  EXPECT_GE(printed("device.product_efficiency"), 0.5);
  EXPECT_LT(printed("device.product_efficiency"), 0.52);
}

TEST_F(Calibrate, ReportsOneErrorPerMistake) {
  folder_.write("node.toml", machine(0.7, 0.8));
  write_steps();
  const auto expect_mistake = [&](const std::string& arguments, const std::string& message) {
    EXPECT_NE(calibrate(arguments), 0) << arguments;
    expect_error(folder_, message);
    EXPECT_EQ(err().find("Traceback"), std::string::npos) << err();
  };
  expect_mistake("steps.csv", "each file of steps needs its machine file after it");
  expect_mistake("steps.csv none.toml", "none.toml: no such file");
  expect_mistake("steps.csv node.toml --keys device.memory", "device.memory cannot be fitted");
  expect_mistake("steps.csv node.toml --keys network.latency",
                 "no machine file sets network.latency; write it with an estimated value first");
  expect_mistake("steps.csv node.toml --keys device.launch --bin nowhere",
                 "cannot run nowhere/trireme: No such file or directory; name its folder with "
                 "--bin");
  folder_.write("broken.toml", "[machine\n");
  expect_mistake("steps.csv broken.toml --keys device.launch", "calibrate: broken.toml: ");
  folder_.write("bad.csv", "layers\nfour\n");
  expect_mistake("bad.csv node.toml --keys device.launch", "error: bad.csv:2: ");
}

}  // namespace
}  // namespace trireme::commands
