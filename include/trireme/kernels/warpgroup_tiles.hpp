#pragma once

#include <trireme/base/function.hpp>
#include <trireme/kernels/tensor_map.hpp>
#include <trireme/kernels/warp_tiles.hpp>

#include <cstdint>

/// Matrix products by the tensor cores of a warpgroup, four warps of consecutive threads. The
/// products (`wgmma` of compute capability 9.0) run asynchronously and read their operands from
/// shared memory; left operands may also be in registers. On devices the Block is CudaGroupBlock
/// (cuda_warpgroup.hpp), in tests EmulatedGroupBlock (tests/support/warpgroup_emulator.hpp). In
/// addition to the operations of a Block (warp_tiles.hpp; no multiply_add and no copies by threads)
/// it has
///
///     int group();                               thread / 128, known to be equal for all lanes
///     void multiply<T, columns, left, right>(c, a, b, add);    starts c = a·b or c += a·b
///     void multiply_left<T, columns, right>(c, a, b, add);     like multiply; a is in registers
///     void begin_products(registers...);         before products that use these arrays
///     void commit_products();                    ends a batch of products
///     void wait_products<n>(registers...);       waits for all batches but the last n; the arrays
///                                                belong to the completed batches
///     void settle(float x);                      x is computed before the next wait_products
///     void init_phases(address, count);          initialises a phase barrier; one thread
///     void publish_phases();                     publishes initialised barriers, before barrier()
///     void arrive(address);                      one of `count` arrivals
///     void arrive(address, bytes);               like arrive; the phase also waits for these bytes
///     void await_phase(address, parity);         waits until the phase of this parity has ended
///     void prefetch(map);                        prefetches a tensor map
///     void copy_box(to, map, x0, x1, x2, x3, address);         the bytes arrive at the barrier
///     void publish_to_products();                publishes this thread's stores, before a barrier
///     void meet(id, threads), signal(id, threads);             barriers 1 … 15, `threads` threads
///     void warp_barrier();                       barrier of the warp's lanes
///     std::uint32_t broadcast(std::uint32_t x);  x of the warp's first lane
///     std::uint32_t load(address);               reads shared memory
///     void store_alone(address, word);           like store, by one thread
///     unsigned take(unsigned* p);                (*p)++, by one thread
///     void raise_registers<n>(), lower_registers<n>();         n per thread; whole warpgroups
///     void store_matrices(address, r), store_matrices_transposed(address, r);  four 8×8 matrices
///     void store_sums(address, float (&)[4]);    16 bytes in shared memory
///     void send_sums(to, address, bytes, add);   global memory: to[i] = or += x[i], one thread
///     void await_read();                         waits until the sent sums have been read
///     void await_sent();                         waits until the sent sums are in global memory
///
/// c is float[columns / 8][4], the fragment of 64 × columns sums: warp w of the group has rows 16 w
/// … 16 w + 15, each 16×8 tile as in warp_tiles.hpp. a in registers is a 64×16 fragment with
/// multiply_add's layout. From begin_products to wait_products, c must not be read or written, a
/// must not be written, and both must stay in scope.
namespace trireme::kernels {

inline constexpr int group_threads = 128;

/// Axis of an operand that is contiguous in shared memory: the depth ("K-major" in the PTX ISA), or
/// the rows of a left operand or the columns of a right operand ("MN-major", "transposed").
enum class Major : std::uint8_t { depth, edge };

/// A matrix descriptor: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout". The
/// descriptor's address and offsets are in units of 16 bytes; the layout has 128-byte swizzling.
TRIREME_FUNCTION std::uint64_t matrix_descriptor(std::uint32_t address, std::uint32_t leading_bytes,
                                                 std::uint32_t stride_bytes) {
  return std::uint64_t{(address & 0x3FFFFU) >> 4} | std::uint64_t{leading_bytes >> 4} << 16 |
         std::uint64_t{stride_bytes >> 4} << 32 | std::uint64_t{1} << 62;
}

/// `rows` rows of two-byte elements in shared memory, in the layout that copy_box writes and
/// products read: consecutive chunks of 64 columns, with 128 bytes per row. Pieces of 16 bytes are
/// permuted within a row of a chunk. `first` is a multiple of 1024, `rows` a multiple of 8.
template <int rows, int columns>
struct GroupRows {
  static_assert(rows % 8 == 0 && columns % 16 == 0);
  static constexpr int chunks = (columns + 63) / 64;
  static constexpr std::uint32_t row_bytes = 128;
  static constexpr std::uint32_t chunk_bytes = rows * row_bytes;
  static constexpr std::uint32_t bytes = chunks * chunk_bytes;

  std::uint32_t first = 0;

  /// Address of columns 8·piece … 8·piece + 7 of a row, for loads and stores by threads.
  TRIREME_DEVICE_FUNCTION std::uint32_t at(int row, int piece) const {
    const auto r = static_cast<std::uint32_t>(row), p = static_cast<std::uint32_t>(piece);
    return first + p / 8 * chunk_bytes + r * row_bytes + (((p % 8) ^ (r % 8)) << 4);
  }
  TRIREME_DEVICE_FUNCTION std::uint32_t chunk(int i) const {
    return first + static_cast<std::uint32_t>(i) * chunk_bytes;
  }
  /// Descriptor of an operand of Major::depth whose first row is `row`, a multiple of 8, for step k
  /// of the depth: columns 16 k … 16 k + 15.
  TRIREME_DEVICE_FUNCTION std::uint64_t depth_major(int row, int k) const {
    return matrix_descriptor(first + static_cast<std::uint32_t>(row) * row_bytes, 16,
                             8 * row_bytes) +
           (static_cast<std::uint32_t>(k / 4) * chunk_bytes +
            static_cast<std::uint32_t>(k % 4) * 32) /
               16;
  }
  /// Descriptor of an operand of Major::edge whose first column is `column`, a multiple of 64, for
  /// step k of the depth: rows 16 k … 16 k + 15.
  TRIREME_DEVICE_FUNCTION std::uint64_t edge_major(int column, int k) const {
    return matrix_descriptor(chunk(column / 64), chunk_bytes, 8 * row_bytes) +
           static_cast<std::uint32_t>(16 * k) * row_bytes / 16;
  }
};

/// Position in a ring of `stages` buffers: index, and parity of the current phase of the barriers.
struct RingPlace {
  int stage = 0;
  std::uint32_t parity = 0;
  template <int stages>
  TRIREME_DEVICE_FUNCTION void next() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

}  // namespace trireme::kernels
