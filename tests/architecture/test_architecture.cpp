#include <trireme/architecture/architecture.hpp>

#include <gtest/gtest.h>

#include <set>

namespace trireme::architecture {
namespace {

deck::ModelConfig gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                      std::int64_t sequence, std::int64_t vocabulary) {
  deck::ModelConfig m;
  m.layers = layers;
  m.hidden = hidden;
  m.heads = heads;
  m.feed_forward = 4 * hidden;
  m.sequence = sequence;
  m.vocabulary = vocabulary;
  return m;
}

TEST(Architecture, CountsParametersOfGpt2Small) {
  EXPECT_EQ(describe(gpt(12, 768, 12, 1024, 50257)).parameters(), 124'439'808);
}

TEST(Architecture, CountsParametersOfThePapersTrillionModel) {
  // Narayanan et al. 2021, table 1, last row; eq. 2 counts all but the final norm's 2 h.
  EXPECT_EQ(describe(gpt(128, 25600, 160, 2048, 51200)).parameters(),
            1'008'038'707'200 + 2 * 25600);
}

TEST(Architecture, FlopsFollowTheDocumentedConvention) {
  const auto a = describe(gpt(2, 8, 2, 16, 100));
  const double n = 2 * 12 * 64 + 100 * 8;
  EXPECT_DOUBLE_EQ(a.model_flops_per_token(), 6 * n + 6.0 * 2 * 8 * 16);
  EXPECT_EQ(static_cast<double>(a.layer_parameters()) + a.head_products(), n);
}

TEST(Architecture, DecaysOnlyMatricesAndNamesAreUnique) {
  std::set<std::string> names;
  for (const auto& array : describe(gpt(3, 12, 3, 5, 7)).arrays) {
    EXPECT_TRUE(names.insert(array.name).second) << array.name;
    EXPECT_EQ(array.decay, array.initialisation == Initialisation::normal) << array.name;
  }
}

TEST(Architecture, UntiedEmbeddingsAddAnOutputMatrix) {
  auto m = gpt(1, 8, 2, 4, 10);
  const auto tied = describe(m);
  m.tied_embeddings = false;
  EXPECT_EQ(describe(m).parameters(), tied.parameters() + 80);
}

}  // namespace
}  // namespace trireme::architecture
