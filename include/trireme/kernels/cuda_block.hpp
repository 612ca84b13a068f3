#pragma once

#if defined(__CUDACC__)

#include <trireme/base/narrow.hpp>

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

/// A Block (warp_tiles.hpp) of threads on NVIDIA devices of compute capability 8.0 or newer. Names
/// and semantics: PTX ISA, sections "mma", "ldmatrix", "cp.async", "Memory Consistency Model".
namespace trireme::kernels {

class CudaBlock {
 public:
  __device__ __forceinline__ CudaBlock() {
    extern __shared__ __align__(128) unsigned char memory[];
    shared_ = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
  }
  __device__ __forceinline__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ std::uint32_t shared() const { return shared_; }
  __device__ __forceinline__ void barrier() const { __syncthreads(); }

  __device__ __forceinline__ bool any(bool x) const { return __any_sync(0xffffffffU, x) != 0; }
  template <class V>
  __device__ __forceinline__ V shuffle_xor(V x, int lanes) const {
    return __shfl_xor_sync(0xffffffffU, x, lanes);
  }

  template <class T>
  __device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4],
                                               std::uint32_t b0, std::uint32_t b1) const {
    if constexpr (std::is_same_v<T, Bf16>)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }

  __device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t from) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
  }
  __device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4],
                                                           std::uint32_t from) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
  }

  /// One instruction packs both floats; its second source operand becomes the lower half.
  template <class T>
  __device__ __forceinline__ std::uint32_t pack(float low, float high) const {
    std::uint32_t packed;
    if constexpr (std::is_same_v<T, Bf16>)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }

  template <int bytes>
  __device__ __forceinline__ void copy_async(std::uint32_t to, const void* from, bool valid) const {
    const std::uint64_t address = __cvta_generic_to_global(from);
    const int filled = valid ? bytes : 0;  // the rest of `bytes` becomes zero
    if constexpr (bytes == 16)
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                   :
                   : "r"(to), "l"(address), "r"(filled)
                   : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                   :
                   : "r"(to), "l"(address), "n"(bytes), "r"(filled)
                   : "memory");
  }
  __device__ __forceinline__ void commit() const {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  template <int groups>
  __device__ __forceinline__ void wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
  }

  __device__ __forceinline__ void store(std::uint32_t to, std::uint32_t word) const {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
  }
  __device__ __forceinline__ void load_pair(float (&x)[2], std::uint32_t from) const {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x[0]), "=f"(x[1])
                 : "r"(from)
                 : "memory");
  }
  __device__ __forceinline__ void read16(std::uint32_t (&x)[4], const void* from) const {
    const uint4 four = *static_cast<const uint4*>(from);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  }
  __device__ __forceinline__ void store16(void* to, const std::uint32_t (&x)[4]) const {
    *static_cast<uint4*>(to) = make_uint4(x[0], x[1], x[2], x[3]);
  }

  __device__ __forceinline__ void store4(void* to, std::uint32_t x) const {
    *static_cast<std::uint32_t*>(to) = x;
  }

  // read4 reads the L2 cache, because other blocks may have written the data, and the L1 caches of
  // multiprocessors are not coherent.
  __device__ __forceinline__ void read4(float (&x)[4], const float* from) const {
    const float4 four = __ldcg(reinterpret_cast<const float4*>(from));
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  }
  __device__ __forceinline__ void write4(float* to, const float (&x)[4]) const {
    __stcg(reinterpret_cast<float4*>(to), make_float4(x[0], x[1], x[2], x[3]));
  }
  __device__ __forceinline__ unsigned take_ticket(unsigned* from) const {
    __shared__ unsigned ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(from, 1U);
    __syncthreads();
    return ticket;
  }
  __device__ __forceinline__ void await(const unsigned* at, unsigned value) const {
    unsigned found;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(at) : "memory");
    } while (found != value);
  }
  /// A release is cumulative: after a barrier, it also publishes the other threads' stores.
  __device__ __forceinline__ void release(unsigned* at, unsigned value) const {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
  }

  __device__ __forceinline__ float exp2(float x) const {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  __device__ __forceinline__ float log(float x) const { return logf(x); }
  __device__ __forceinline__ float larger(float x, float y) const { return fmaxf(x, y); }
  __device__ __forceinline__ std::uint32_t unknown(std::uint32_t x) const {
    asm volatile("" : "+r"(x));
    return x;
  }

 private:
  std::uint32_t shared_;
};

template <class Kernel>
__global__ void __launch_bounds__(Kernel::Tile::threads, Kernel::Tile::blocks_per_processor)
    run_on_cuda(const __grid_constant__ typename Kernel::Arguments arguments) {
#if __CUDA_ARCH__ >= 800
  CudaBlock block;
  Kernel::run(block, arguments);
#else
  __trap();  // never launched: see block_kernel_runs()
#endif
}

}  // namespace trireme::kernels

#endif
