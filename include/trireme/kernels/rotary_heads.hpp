#pragma once

#include <trireme/kernels/packs.hpp>

#include <cstdint>

/// The rotation of pairs on devices, from given cosines and sines; tests also run it on hosts.
namespace trireme::kernels::detail {

/// (a, b) = (a cos − b sin, b cos + a sin) for a = x[h·size + i], b = x[h·size + size/2 + i] of all
/// heads h and of i in [0, pairs), in place. x points to the first of these pairs in head 0 of the
/// row. Lanes are distributed over the pairs of all heads.
template <class Member, class T>
KOKKOS_FORCEINLINE_FUNCTION void turn_heads(const Member& team, T* x, std::int64_t pairs,
                                            std::int64_t heads, std::int64_t size,
                                            const Accumulate<T>* cosine,
                                            const Accumulate<T>* sine) {
  using Acc = Accumulate<T>;
  constexpr int width = pack_width<T>;
  const std::int64_t half = size / 2;
  const auto turned = [](std::int64_t, Acc a, Acc b, Acc c, Acc s) {
    return Two<Acc>{a * c - b * s, b * c + a * s};
  };
  if (pairs % width == 0 && half % width == 0 && in_packs<width>(x) && in_packs<width>(cosine) &&
      in_packs<width>(sine)) {
    const auto packs = static_cast<std::uint32_t>(pairs / width);  // 64-bit division is slow
    for_lanes(team, heads * packs, [&](std::int64_t p) {
      const auto pack = static_cast<std::uint32_t>(p);
      const std::int64_t first = static_cast<std::int64_t>(pack % packs) * width;
      T* lower = x + static_cast<std::int64_t>(pack / packs) * size;
      T* upper = lower + half;
      map_pack_to_two<width>(turned, first, lower, upper, pack_at<width>(lower, first),
                             pack_at<width>(upper, first), pack_at<width>(cosine, first),
                             pack_at<width>(sine, first));
    });
    return;
  }
  for_lanes(team, heads * pairs, [&](std::int64_t p) {
    const std::int64_t i = p % pairs;
    T* lower = x + p / pairs * size;
    T* upper = lower + half;
    const Two<Acc> both =
        turned(i, static_cast<Acc>(lower[i]), static_cast<Acc>(upper[i]), cosine[i], sine[i]);
    lower[i] = static_cast<T>(both.first);
    upper[i] = static_cast<T>(both.second);
  });
}

}  // namespace trireme::kernels::detail
