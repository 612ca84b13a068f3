#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {

/// Instructions that multiply bf16 on a host.
enum class Bf16Instructions : std::uint8_t {
  plain,   ///< C++, slow: the same blocks on every processor, for tests
  avx512,  ///< AVX-512 BF16 (VDPBF16PS)
  amx      ///< AMX (TDPBF16PS)
};

/// The fastest instructions that this processor and its operating system allow, or plain. The
/// environment variable TRIREME_BF16 = avx512 or plain hides faster ones.
Bf16Instructions bf16_instructions();
/// Error if the variable has another value than these and amx.
void expect_valid_bf16_variable();
std::string_view name_of(Bf16Instructions instructions);  ///< "C++", "AVX-512 BF16", "AMX"

}  // namespace trireme
