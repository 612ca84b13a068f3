#pragma once

#if defined(__CUDACC__)

#include <trireme/kernels/cuda_block.hpp>
#include <trireme/kernels/warpgroup_tiles.hpp>

#include <cstdint>
#include <type_traits>

/// A Block of warpgroups (warpgroup_tiles.hpp) on NVIDIA devices of compute capability 9.0,
/// compiled for sm_90a. Names and semantics: PTX ISA, sections "wgmma", "mbarrier",
/// "cp.async.bulk.tensor", "setmaxnreg", "fence.proxy".
namespace trireme::kernels {

// For n tiles of 8 columns: the accumulators as the first operands of an asm statement
// (TRIREME_TILESn), and the names of these operands in the instruction (TRIREME_NAMESn).
#define TRIREME_TILE(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define TRIREME_FOUR_TILES(n) \
  TRIREME_TILE(n), TRIREME_TILE(n + 1), TRIREME_TILE(n + 2), TRIREME_TILE(n + 3)
#define TRIREME_TILES4 TRIREME_FOUR_TILES(0)
#define TRIREME_TILES8 TRIREME_TILES4, TRIREME_FOUR_TILES(4)
#define TRIREME_TILES10 TRIREME_TILES8, TRIREME_TILE(8), TRIREME_TILE(9)
#define TRIREME_TILES12 TRIREME_TILES8, TRIREME_FOUR_TILES(8)
#define TRIREME_TILES16 TRIREME_TILES12, TRIREME_FOUR_TILES(12)
#define TRIREME_TILES24 TRIREME_TILES16, TRIREME_FOUR_TILES(16), TRIREME_FOUR_TILES(20)
#define TRIREME_TILES32 TRIREME_TILES24, TRIREME_FOUR_TILES(24), TRIREME_FOUR_TILES(28)
#define TRIREME_NAMES4 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TRIREME_NAMES8                                                                             \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
  "%26,%27,%28,%29,%30,%31"
#define TRIREME_NAMES10 TRIREME_NAMES8 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define TRIREME_NAMES12 TRIREME_NAMES10 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define TRIREME_NAMES16 \
  TRIREME_NAMES12 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TRIREME_NAMES24                                                                          \
  TRIREME_NAMES16                                                                                \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86" \
  ",%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define TRIREME_NAMES32                                                                          \
  TRIREME_NAMES24                                                                                \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114," \
  "%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// One product with `tiles` tiles of 8 columns. A … TB: numbers of the other operands, which follow
// the accumulators. The left operand is in shared memory (SHARED) or in registers (LEFT).
#define TRIREME_PRODUCT_SHARED(type, columns, tiles, A, B, P, TA, TB)                     \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" P                                        \
               ", 0;"                                                                     \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type       \
               " {" TRIREME_NAMES##tiles "}, %" A ", %" B ", p, 1, 1, %" TA ", %" TB ";}" \
               : TRIREME_TILES##tiles                                                     \
               : "l"(a), "l"(b), "r"(add), "n"(left == Major::edge), "n"(right == Major::edge))
#define TRIREME_PRODUCT_LEFT(type, columns, tiles, A0, A1, A2, A3, B, P, TB)                       \
  asm volatile(                                                                                    \
      "{.reg .pred p; setp.ne.b32 p, %" P                                                          \
      ", 0;"                                                                                       \
      "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type                         \
      " {" TRIREME_NAMES##tiles "}, {%" A0 ",%" A1 ",%" A2 ",%" A3 "}, %" B ", p, 1, 1, %" TB ";}" \
      : TRIREME_TILES##tiles                                                                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(right == Major::edge))
#define TRIREME_PRODUCTS(type)                                                              \
  do {                                                                                      \
    if constexpr (columns == 32)                                                            \
      TRIREME_PRODUCT_OF(type, "32", 4, "16", "17", "18", "19", "20", "21", "22");          \
    else if constexpr (columns == 64)                                                       \
      TRIREME_PRODUCT_OF(type, "64", 8, "32", "33", "34", "35", "36", "37", "38");          \
    else if constexpr (columns == 80)                                                       \
      TRIREME_PRODUCT_OF(type, "80", 10, "40", "41", "42", "43", "44", "45", "46");         \
    else if constexpr (columns == 96)                                                       \
      TRIREME_PRODUCT_OF(type, "96", 12, "48", "49", "50", "51", "52", "53", "54");         \
    else if constexpr (columns == 128)                                                      \
      TRIREME_PRODUCT_OF(type, "128", 16, "64", "65", "66", "67", "68", "69", "70");        \
    else if constexpr (columns == 192)                                                      \
      TRIREME_PRODUCT_OF(type, "192", 24, "96", "97", "98", "99", "100", "101", "102");     \
    else                                                                                    \
      TRIREME_PRODUCT_OF(type, "256", 32, "128", "129", "130", "131", "132", "133", "134"); \
  } while (false)

class CudaGroupBlock : public CudaBlock {
 public:
  /// Swizzled tiles must begin at a multiple of 1024 bytes. The launch therefore requests 1024
  /// bytes of shared memory more than the tiles need.
  __device__ __forceinline__ CudaGroupBlock() : tiles_((CudaBlock::shared() + 1023U) & ~1023U) {}
  __device__ __forceinline__ std::uint32_t shared() const { return tiles_; }
  __device__ __forceinline__ int group() const {
    return __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / group_threads, 0);
  }

  template <class T, int columns, Major left, Major right>
  __device__ __forceinline__ void multiply(float (&c)[columns / 8][4], std::uint64_t a,
                                           std::uint64_t b, bool accumulate) const {
    static_assert(has_columns(columns));
    const int add = accumulate ? 1 : 0;
#define TRIREME_PRODUCT_OF(type, columns, tiles, A, B, P, TA, TB, ...) \
  TRIREME_PRODUCT_SHARED(type, columns, tiles, A, B, P, TA, TB)
    if constexpr (std::is_same_v<T, Bf16>)
      TRIREME_PRODUCTS("bf16");
    else
      TRIREME_PRODUCTS("f16");
#undef TRIREME_PRODUCT_OF
  }
  template <class T, int columns, Major right>
  __device__ __forceinline__ void multiply_left(float (&c)[columns / 8][4],
                                                const std::uint32_t (&a)[4], std::uint64_t b,
                                                bool accumulate) const {
    static_assert(has_columns(columns));
    const int add = accumulate ? 1 : 0;
#define TRIREME_PRODUCT_OF TRIREME_PRODUCT_LEFT
    if constexpr (std::is_same_v<T, Bf16>)
      TRIREME_PRODUCTS("bf16");
    else
      TRIREME_PRODUCTS("f16");
#undef TRIREME_PRODUCT_OF
  }

  /// Uses of these registers are not moved across this fence.
  template <class... Registers>
  __device__ __forceinline__ void begin_products(Registers&... registers) const {
    (keep(registers), ...);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  }
  __device__ __forceinline__ void commit_products() const {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  template <int batches, class... Registers>
  __device__ __forceinline__ void wait_products(Registers&... registers) const {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(batches) : "memory");
    (keep(registers), ...);
  }

  /// The assembler may move a wait for products ahead of independent arithmetic, but not ahead of a
  /// store. This store depends on x and never happens, because x is not below −infinity.
  __device__ __forceinline__ void settle(float x) const {
    asm volatile(
        "{.reg .pred p;\n"
        "setp.lt.f32 p, %0, 0fFF800000;\n"
        "@p st.shared.f32 [%1], %0;\n}" ::"f"(x),
        "r"(tiles_)
        : "memory");
  }

  __device__ __forceinline__ void init_phases(std::uint32_t at, int count) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
  }
  __device__ __forceinline__ void publish_phases() const {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    publish_to_products();
  }
  __device__ __forceinline__ void arrive(std::uint32_t at) const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  }
  __device__ __forceinline__ void arrive(std::uint32_t at, std::uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void await_phase(std::uint32_t at, std::uint32_t parity) const {
    asm volatile(
        "{.reg .pred p;\n"
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra DONE;\n"
        "bra AGAIN;\n"
        "DONE:\n}" ::"r"(at),
        "r"(parity)
        : "memory");
  }
  __device__ __forceinline__ void prefetch(const TensorMap& map) const {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
  }
  __device__ __forceinline__ void copy_box(std::uint32_t to, const TensorMap& map, int x0, int x1,
                                           int x2, int x3, std::uint32_t phases) const {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
        "l"(&map), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(phases)
        : "memory");
  }
  __device__ __forceinline__ void publish_to_products() const {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __device__ __forceinline__ void meet(int id, int threads) const {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
  }
  __device__ __forceinline__ void signal(int id, int threads) const {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
  }
  __device__ __forceinline__ void warp_barrier() const {
    __syncwarp();
  }
  __device__ __forceinline__ std::uint32_t broadcast(std::uint32_t x) const {
    return __shfl_sync(0xffffffffU, x, 0);
  }
  __device__ __forceinline__ std::uint32_t load(std::uint32_t from) const {
    std::uint32_t x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
  }
  __device__ __forceinline__ void store_alone(std::uint32_t to, std::uint32_t word) const {
    store(to, word);
  }
  __device__ __forceinline__ unsigned take(unsigned* from) const {
    return atomicAdd(from, 1U);
  }
  template <int registers>
  __device__ __forceinline__ void raise_registers() const {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
  }
  template <int registers>
  __device__ __forceinline__ void lower_registers() const {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
  }
  __device__ __forceinline__ void store_matrices(std::uint32_t to,
                                                 const std::uint32_t (&r)[4]) const {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
  }
  __device__ __forceinline__ void store_matrices_transposed(std::uint32_t to,
                                                            const std::uint32_t (&r)[4]) const {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
  }

  __device__ __forceinline__ void store_sums(std::uint32_t to, const float (&x)[4]) const {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x[0]), "f"(x[1]),
                 "f"(x[2]), "f"(x[3])
                 : "memory");
  }
  /// The copy uses the async proxy. The fence orders the copy after the writes that this thread has
  /// acquired.
  __device__ __forceinline__ void send_sums(float* to, std::uint32_t from, std::uint32_t bytes,
                                            bool add) const {
    const std::uint64_t address = __cvta_generic_to_global(to);
    asm volatile("fence.proxy.async.global;" ::: "memory");
    if (add)
      asm volatile(
          "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
              address),
          "r"(from), "r"(bytes)
          : "memory");
    else
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(address),
                   "r"(from), "r"(bytes)
                   : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  __device__ __forceinline__ void await_read() const {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
  __device__ __forceinline__ void await_sent() const {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }

 private:
  __device__ static constexpr bool has_columns(int n) {
    return n == 32 || n == 64 || n == 80 || n == 96 || n == 128 || n == 192 || n == 256;
  }
  template <int n>
  __device__ __forceinline__ static void keep(float (&x)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) asm volatile("" : "+f"(x[i])::"memory");
  }
  template <int n>
  __device__ __forceinline__ static void keep(std::uint32_t (&x)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) asm volatile("" : "+r"(x[i])::"memory");
  }
  template <class X, int rows, int n>
  __device__ __forceinline__ static void keep(X (&x)[rows][n]) {
#pragma unroll
    for (int i = 0; i < rows; ++i) keep(x[i]);
  }

  std::uint32_t tiles_;
};

#undef TRIREME_TILE
#undef TRIREME_FOUR_TILES
#undef TRIREME_TILES4
#undef TRIREME_TILES8
#undef TRIREME_TILES10
#undef TRIREME_TILES12
#undef TRIREME_TILES16
#undef TRIREME_TILES24
#undef TRIREME_TILES32
#undef TRIREME_NAMES4
#undef TRIREME_NAMES8
#undef TRIREME_NAMES10
#undef TRIREME_NAMES12
#undef TRIREME_NAMES16
#undef TRIREME_NAMES24
#undef TRIREME_NAMES32
#undef TRIREME_PRODUCT_SHARED
#undef TRIREME_PRODUCT_LEFT
#undef TRIREME_PRODUCTS

template <class Kernel>
__global__ void __launch_bounds__(Kernel::Tile::threads, 1)
    run_groups_on_cuda(const __grid_constant__ typename Kernel::Arguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  CudaGroupBlock block;
  Kernel::run(block, arguments);
#else
  __trap();  // never launched: see group_kernels_available()
#endif
}

}  // namespace trireme::kernels

#endif
