#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/manifest.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/io/input_file.hpp>

#include <checkpoint/support.hpp>

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace trireme::checkpoint {
namespace {

using namespace checkpoint::testing;
using trireme::testing::TemporaryFolder;

/// A manifest with a part replaced and a checksum that is right again.
std::string resealed(std::string content, const std::string& from, const std::string& to) {
  const auto at = content.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << content;
  content.replace(at, from.size(), to);
  content.resize(content.rfind(",\n\"checksum\""));
  return text(content, ",\n\"checksum\":\"",
              trireme::checksum(content.data(), content.size()).hex(), "\"}\n");
}

TEST(ManifestNumbers, AcceptsOnlyNonNegativeIntegers) {
  const TemporaryFolder folder;
  const std::string directory = folder.file("c");
  const std::string saved = save_cut(directory, 5, {{"weight", DType::fp32, {6, 4}}}, 0, 1);
  const std::string content = io::read_text_file(saved + "/" + manifest_name);
  EXPECT_EQ(parse_manifest(resealed(content, "\"step\":5", "\"step\":7"), "m").step, 7)
      << "a whole number is not refused";
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"step\":5", "\"step\":-5"},
           {"\"step\":5", "\"step\":5.5"},
           {"\"step\":5", "\"step\":5.0"},
           {"\"step\":5", "\"step\":18446744073709551615"},
           {"\"step\":5", "\"step\":true"},
           {"\"step\":5", "\"step\":\"5\""},
           {"\"samples\":", "\"samples\":-1,\"was\":"},
           {"\"samples\":", "\"samples\":0.5e0,\"was\":"},
           {"\"shape\":[6,4]", "\"shape\":[6.5,4]"},
           {"\"shape\":[6,4]", "\"shape\":[-6,4]"},
           {"\"format\":2", "\"format\":2.5"}}) {
    SCOPED_TRACE(to);
    const std::string message =
        message_of([&] { parse_manifest(resealed(content, from, to), "m"); });
    expect_mentions(message, {"m: has ", "where a whole number of at least 0 is expected"});
  }
}

TEST(ManifestNumbers, RejectsShapesAboveTheLimit) {
  const TemporaryFolder folder;
  const std::string saved = save_cut(folder.file("c"), 5, {{"weight", DType::fp32, {6, 4}}}, 0, 1);
  const std::string content = io::read_text_file(saved + "/" + manifest_name);
  for (const char* shape : {"[9223372036854775807,4]", "[72057594037927937]"}) {
    const std::string changed = resealed(content, "\"shape\":[6,4]", text("\"shape\":", shape));
    expect_mentions(message_of([&] { parse_manifest(changed, "m"); }),
                    {"m: array 'weight' has the shape ", "more than 2^56 elements"});
  }
}

/// With "latest" such a checkpoint is passed over.
TEST(ManifestNumbers, FallsBackFromAnInvalidNumber) {
  const TemporaryFolder folder;
  const std::string directory = folder.file("c");
  const std::vector<TestArray> arrays{{"weight", DType::fp32, {6, 4}}};
  const std::string first = save_cut(directory, 1, arrays, 0, 1);
  const std::string second = save_cut(directory, 2, arrays, 0, 1);
  const std::string content = io::read_text_file(second + "/" + manifest_name);
  folder.write("c/step_00000002/manifest.json", resealed(content, "\"step\":2", "\"step\":-2"));
  EXPECT_EQ(latest(directory), first);
}

}  // namespace
}  // namespace trireme::checkpoint
