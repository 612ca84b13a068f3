#include <trireme/checkpoint/writer.hpp>
#include <trireme/train/load.hpp>

#include "support/training.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace trireme::train {
namespace {

using namespace trireme::testing;

TEST(Load, PartialAndDirectReadsGiveTheSameArrays) {
  const TemporaryFolder folder;
  std::vector<float> stored(7 * 5 * 3);
  std::iota(stored.begin(), stored.end(), 1.0F);
  const std::vector<checkpoint::ArrayView> arrays{{"a", DType::fp32, {7, 5, 3}, stored.data()}};
  checkpoint::write(folder.file("c"), {1, 1, "# deck"}, arrays, 0);
  const checkpoint::Reader reader(folder.file("c/step_00000001"));

  std::vector<float> expected;  // rows 1 to 6 of the second axis' 1 to 3
  for (std::size_t i = 1; i < 6; ++i)
    for (std::size_t j = 1; j < 3; ++j)
      for (std::size_t k = 0; k < 3; ++k) expected.push_back(stored[(i * 5 + j) * 3 + k]);
  const Exec exec;
  for (const std::int64_t bytes : {0, 4, 12, 40, 1 << 20}) {
    Arena arena("test", aligned(30 * 4));
    const NamedTensor<float> tensor{"a", {7, 5, 3}, {1, 1, 0}, {5, 2, 3}, arena.take<float>(30)};
    if (bytes == 0)
      load_array(exec, reader, tensor);
    else
      load_staged(exec, reader, tensor, bytes);
    std::vector<float> found(30);
    copy_to_host<float>(exec, found, tensor.data, "test");
    EXPECT_EQ(found, expected) << bytes;
  }
}

TEST(Load, InitialiseResetsAllState) {
  const TemporaryFolder folder;
  const data::TokenFile tokens(write_tokens(folder, 4000));
  const auto self = grid::Communicator::self();
  Rig rig(small_config(2, 1, 1), tokens, *self);
  const Trace fresh = rig.run(1, 3);
  rig.engine->initialise();
  EXPECT_EQ(rig.run(1, 3), fresh);
}

}  // namespace
}  // namespace trireme::train
