#include <trireme/kernels/hash.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {
namespace {

/// The output function of SplitMix64 (Steele et al. 2014, "Fast splittable pseudorandom number
/// generators"). Each statement is a bijection of the word.
KOKKOS_FORCEINLINE_FUNCTION std::uint64_t mix(std::uint64_t word, std::int64_t i) {
  std::uint64_t z = word ^ (static_cast<std::uint64_t>(i + 1) * 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

template <class Word>
void add_hash(const Exec& exec, View1<std::uint64_t> hash, View1<const Word> x) {
  expect_shape(hash, "hash", {1});
  for_chunks(
      "kernels/add_hash", exec, extent(x, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const Word* part = x.data() + first;
        const auto sum = sum_lanes<std::uint64_t>(
            team, count, [&](std::int64_t i) { return mix(part[i], first + i); });
        // Atomic, yet deterministic: the order of integer additions does not matter.
        once(team, [&]() { Kokkos::atomic_add(&hash(0), sum); });
      });
}

void add_hash_of_bits(const Exec& exec, View1<std::uint64_t> hash, const void* data,
                      std::int64_t elements, int size) {
  const auto add = [&]<class Word>(Word) {
    add_hash<Word>(
        exec, hash,
        View1<const Word>(static_cast<const Word*>(data), static_cast<std::size_t>(elements)));
  };
  if (size == 2) return add(std::uint16_t());
  if (size == 4) return add(std::uint32_t());
  check(size == 8, "add_hash_of_bits: size = ", size, ", expected 2, 4 or 8");
  add(std::uint64_t());
}

template void add_hash<std::uint16_t>(const Exec&, View1<std::uint64_t>,
                                      View1<const std::uint16_t>);
template void add_hash<std::uint32_t>(const Exec&, View1<std::uint64_t>,
                                      View1<const std::uint32_t>);
template void add_hash<std::uint64_t>(const Exec&, View1<std::uint64_t>,
                                      View1<const std::uint64_t>);

}  // namespace trireme::kernels
