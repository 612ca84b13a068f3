#pragma once

#include <trireme/architecture/shard.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// The offset of each array of a rank in the weight, gradient and optimizer arenas, in elements:
/// the same in all of them. First the arrays that the tensor axis cuts, then those of which every
/// tensor rank holds the whole, last those of these whose gradients are always parts of a sum. So
/// one message sums the gradients of each of the last two over the tensor axis; they are in the
/// same order on all tensor ranks, so that their data-parallel sums are cut at the same elements.
struct Placement {
  std::vector<std::int64_t> offset;  ///< per local array
  std::int64_t replicated = 0;       ///< first element behind the arrays that are cut
  std::int64_t elements = 0;         ///< of the weight and optimizer arenas
  std::int64_t tied_offset = 0;    ///< of the second gradient of tied embeddings, behind all others
  std::int64_t tied_elements = 0;  ///< 0 unless this rank has look-up and logits of tied embeddings
  std::int64_t gradient_elements = 0;  ///< `elements`, and the tied gradient where there is one
};

/// Arrays begin at multiples of 32 elements (64 bytes of a two-byte type), except those that follow
/// their predecessor.
Placement place(const Architecture& architecture, const Shard& shard,
                const std::vector<LocalArray>& arrays);

/// The arrays of a stage of which all tensor ranks hold the whole, with or without
/// partial_gradient: one run of the arena.
layout::Slice replicated_part(const std::vector<LocalArray>& arrays, const Placement& placement,
                              Stage stage, bool partial_gradient);

/// Elements of a block of logits. Every block reads and writes the gradient of the output's matrix
/// once: 64 MiB of fp32 logits stay near a host's caches; on a device 512 MiB make that traffic
/// small beside the products.
inline constexpr std::int64_t host_logit_elements = std::int64_t{1} << 24;
inline constexpr std::int64_t device_logit_elements = std::int64_t{1} << 27;

/// Rows of logits computed at a time, blocks of at most `block_elements` but of 64 rows at least:
/// whole logits are never stored. Depends on tokens, vocabulary and kind of machine alone, so that
/// layouts agree.
std::int64_t logit_block_rows(std::int64_t tokens, std::int64_t vocabulary,
                              std::int64_t block_elements);

}  // namespace trireme::architecture
