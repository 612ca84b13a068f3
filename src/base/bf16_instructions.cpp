#include <trireme/base/bf16_instructions.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/types.hpp>

#include <algorithm>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace trireme {
namespace {

#if defined(__x86_64__)
/// Whether the operating system saves these states (bits of XCR0) of a thread.
bool system_saves(unsigned states) {
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & states) == states;
}

/// Requests the tile registers from Linux. Returns whether the process may use them.
bool may_use_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr long request = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;
  return syscall(SYS_arch_prctl, request, tile_data) == 0;
#else
  return false;
#endif
}

Bf16Instructions found() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return Bf16Instructions::plain;
  constexpr unsigned vectors = 0xe6;    // XCR0: XMM, YMM, mask registers, both parts of ZMM
  constexpr unsigned tiles = 3U << 17;  // XCR0: TILECFG, TILEDATA
  constexpr unsigned avx512 = 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;  // F, DQ, BW, VL
  constexpr unsigned amx = 1U << 22 | 1U << 24;                           // BF16, TILE
  constexpr unsigned avx512_bf16 = 1U << 5;
  unsigned features = 0;
  unsigned tile_features = 0;
  if (__get_cpuid_count(7, 0, &a, &features, &c, &tile_features) == 0 ||
      __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0)
    return Bf16Instructions::plain;
  if ((features & avx512) != avx512 || (a & avx512_bf16) == 0 || !system_saves(vectors))
    return Bf16Instructions::plain;
  if ((tile_features & amx) != amx || !system_saves(tiles) || !may_use_tiles())
    return Bf16Instructions::avx512;
  return Bf16Instructions::amx;
}
#else
Bf16Instructions found() {
  return Bf16Instructions::plain;
}
#endif

}  // namespace

Bf16Instructions bf16_instructions() {
  static const Bf16Instructions chosen = [] {
    const char* variable = std::getenv("TRIREME_BF16");
    const std::string_view most = variable == nullptr ? "amx" : variable;
    if (most == "plain") return Bf16Instructions::plain;
    if (most == "avx512") return std::min(found(), Bf16Instructions::avx512);
    return found();
  }();
  return chosen;
}

void expect_valid_bf16_variable() {
  const char* variable = std::getenv("TRIREME_BF16");
  const std::string_view most = variable == nullptr ? "amx" : variable;
  check_usage(most == "amx" || most == "avx512" || most == "plain", "TRIREME_BF16 = \"", most,
              "\" is not \"amx\", \"avx512\" or \"plain\"; set one of them, or unset it");
}

std::string_view name_of(Bf16Instructions instructions) {
  static constexpr auto all = words_of<Bf16Instructions>("C++", "AVX-512 BF16", "AMX");
  return all[static_cast<std::size_t>(instructions)];
}

}  // namespace trireme
