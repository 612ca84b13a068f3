#include <trireme/architecture/placement.hpp>
#include <trireme/deck/families.hpp>
#include <trireme/model/tensor_memory.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace trireme::model {
namespace {

using architecture::Home;

template <class P>
class TensorMemoryTest : public ::testing::Test {};
using Precisions = ::testing::Types<Fp32, Fp64, MixedBf16, MixedFp16>;
TYPED_TEST_SUITE(TensorMemoryTest, Precisions);

deck::ModelConfig one_layer_model(Family family) {
  deck::ModelConfig m;
  deck::set_family(m, family);
  m.layers = 1;
  m.hidden = 24;
  m.heads = m.key_value_heads = 2;
  m.feed_forward = 96;
  m.sequence = 20;
  m.vocabulary = 97;
  return m;
}

TYPED_TEST(TensorMemoryTest, UsesTheBytesOfTheDescription) {
  using T = typename TypeParam::Compute;
  for (const Family family : {Family::gpt, Family::llama, Family::bert}) {
    const auto a = architecture::describe(one_layer_model(family));
    const auto n = architecture::rank_sizes(a.model, architecture::whole_model(a), 3, 20, false,
                                            architecture::host_logit_elements);
    for (const auto* part : {&a.embedding(), &a.head()})
      for (const Home home : {Home::batch, Home::slot, Home::split, Home::scratch}) {
        Arena plan;
        const TensorMemory<TypeParam> memory(plan, *part, home, n);
        EXPECT_EQ(plan.used(),
                  architecture::bytes_at(home, *part, n, sizeof(T), sizeof(Accumulate<T>)));
      }
  }
}

TYPED_TEST(TensorMemoryTest, TensorsHaveTheirShapesAndDoNotOverlap) {
  using T = typename TypeParam::Compute;
  const auto a = architecture::describe(one_layer_model(Family::bert));
  const auto n = architecture::rank_sizes(a.model, architecture::whole_model(a), 3, 20, false,
                                          architecture::host_logit_elements);
  Arena arena("test",
              architecture::bytes_at(Home::scratch, a.head(), n, sizeof(T), sizeof(Accumulate<T>)));
  const TensorMemory<TypeParam> memory(arena, a.head(), Home::scratch, n);
  const View2<T> picked = memory.matrix("picked");  // 9 masked tokens, 3 first ones
  EXPECT_EQ(picked.extent(0), 12u);
  EXPECT_EQ(picked.extent(1), 24u);
  EXPECT_EQ(static_cast<const void*>(picked.data()), arena.data());
  const View2<T> dense = memory.matrix("dense");
  EXPECT_GE(dense.data(), picked.data() + picked.size());
  const auto scores = memory.template matrix<Accumulate<T>>("scores");
  EXPECT_EQ(scores.extent(0), 3u);
  EXPECT_EQ(scores.extent(1), 2u);
  EXPECT_EQ(memory.template list<double>("merged").extent(0), 27u);
  const void* gradient = memory.matrix("dlogits").data();
  const void* logits = memory.template matrix<Accumulate<T>>("logits").data();
  EXPECT_EQ(gradient == logits, !is_narrow<T>);
}

TYPED_TEST(TensorMemoryTest, VocabularyRowsAreAlignedTo64Bytes) {
  using T = typename TypeParam::Compute;
  const auto a = architecture::describe(one_layer_model(Family::gpt));
  const auto n = architecture::rank_sizes(a.model, architecture::whole_model(a), 3, 20, false,
                                          architecture::host_logit_elements);
  Arena arena("test",
              architecture::bytes_at(Home::scratch, a.head(), n, sizeof(T), sizeof(Accumulate<T>)));
  const TensorMemory<TypeParam> memory(arena, a.head(), Home::scratch, n);
  const auto expect = [&](const auto& rows) {
    EXPECT_EQ(rows.extent(0), 60u);
    EXPECT_EQ(rows.extent(1), 97u);
    EXPECT_EQ(rows.stride(0) * sizeof(rows(0, 0)), (97 * sizeof(rows(0, 0)) + 63) / 64 * 64);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&rows(59, 0)) % 64, 0u);
    EXPECT_LE(reinterpret_cast<std::byte*>(&rows(59, 96) + 1), arena.data() + arena.used());
  };
  expect(memory.template matrix<Accumulate<T>>("logits"));
  expect(memory.matrix("dlogits"));
  const auto y = memory.template matrix<double>("losses");
  EXPECT_EQ(y.stride(0), 1u);  // other rows have no gaps
}

TYPED_TEST(TensorMemoryTest, UnknownTensorsAreEmptyAndWrongTypesAnError) {
  const auto a = architecture::describe(one_layer_model(Family::gpt));
  const auto n = architecture::rank_sizes(a.model, architecture::whole_model(a), 3, 20, false,
                                          architecture::host_logit_elements);
  Arena plan;
  const TensorMemory<TypeParam> memory(plan, a.head(), Home::scratch, n);
  EXPECT_EQ(memory.matrix("picked").size(), 0u);
  EXPECT_THROW(memory.template matrix<std::int16_t>("losses"), Error);
}

}  // namespace
}  // namespace trireme::model
