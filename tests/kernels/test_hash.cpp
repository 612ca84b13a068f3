#include <trireme/kernels/hash.hpp>

#include <support/device_array.hpp>

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;

template <class Word>
std::uint64_t hash_of(const std::vector<Word>& words) {
  const DeviceArray<Word> x(words);
  const DeviceArray<std::uint64_t> hash(1);
  const Exec exec;
  add_hash_of_bits(exec, hash.flat(), x.data(), static_cast<std::int64_t>(words.size()),
                   sizeof(Word));
  exec.fence();
  return hash.values().front();
}

template <class Word>
std::vector<Word> random_words(std::size_t n) {
  std::mt19937_64 random(7);
  std::vector<Word> words(n);
  for (Word& word : words) word = static_cast<Word>(random());
  return words;
}

template <class Word>
class Hash : public ::testing::Test {};
using Words = ::testing::Types<std::uint16_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(Hash, Words);

TYPED_TEST(Hash, EveryFlippedBitChangesIt) {
  for (const std::size_t n : {1u, 13u, 128u}) {
    std::vector<TypeParam> words = random_words<TypeParam>(n);
    std::set<std::uint64_t> hashes{hash_of(words)};
    for (TypeParam& word : words)
      for (std::size_t bit = 0; bit < 8 * sizeof(TypeParam); ++bit) {
        const auto flip = static_cast<TypeParam>(TypeParam{1} << bit);
        word = static_cast<TypeParam>(word ^ flip);
        hashes.insert(hash_of(words));
        word = static_cast<TypeParam>(word ^ flip);
      }
    EXPECT_EQ(hashes.size(), 1 + n * 8 * sizeof(TypeParam));
  }
}

TYPED_TEST(Hash, DependsOnPositionsInLargeArrays) {
  std::vector<TypeParam> words = random_words<TypeParam>(20000);
  const std::uint64_t before = hash_of(words);
  EXPECT_EQ(hash_of(words), before);
  words[1] = static_cast<TypeParam>(words[15000] + 1);
  const std::uint64_t changed = hash_of(words);
  std::swap(words[1], words[15000]);
  EXPECT_NE(hash_of(words), changed);
  const std::vector<TypeParam> zeros(20000);
  EXPECT_NE(hash_of(zeros), hash_of(std::vector<TypeParam>(19999)));
}

TEST(BitHash, RejectsOtherElementSizes) {
  const DeviceArray<std::uint64_t> hash(1);
  EXPECT_THROW(add_hash_of_bits(Exec(), hash.flat(), hash.data(), 1, 1), std::exception);
}

}  // namespace
}  // namespace trireme::kernels
