// Availability, tensor maps and counters of the warpgroup kernels. The driver's function that
// creates tensor maps is looked up at run time, because the driver's library is not linked.
#include <trireme/kernels/group_launch.hpp>

#include <cuda.h>

#include <atomic>
#include <cstring>

namespace trireme::kernels {

bool group_kernels_available() {
  static const bool available = [] {
    int device = 0, major = 0, minor = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ==
               cudaSuccess &&
           major == 9 && minor == 0;
  }();
  return available;
}

namespace sm_90a {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                              cudaEnableDefault, &result),
             "cuTensorMapEncodeTiled");
#else
  check_cuda(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result),
             "cuTensorMapEncodeTiled");
#endif
  check(result == cudaDriverEntryPointSuccess && found != nullptr,
        "the driver has no cuTensorMapEncodeTiled; install one for CUDA 12.0 or newer");
  return reinterpret_cast<Encode>(found);
}

constexpr unsigned pairs = 64;
__device__ unsigned counters[2 * pairs];

}  // namespace

TensorMap make_tensor_map(const TensorMapShape& shape) {
  static const Encode encode = find_encode();
  static_assert(sizeof(CUtensorMap) == sizeof(TensorMap));
  cuuint64_t sizes[4], strides[3];
  cuuint32_t box[4], steps[4];
  for (int i = 0; i < 4; ++i) {
    sizes[i] = static_cast<cuuint64_t>(shape.sizes[i]);
    box[i] = shape.box[i];
    steps[i] = 1;
  }
  for (int i = 0; i < 3; ++i) strides[i] = static_cast<cuuint64_t>(shape.strides[i]);
  CUtensorMap made;
  // Both two-byte types are copied as 16-bit integers, without conversion.
  const CUresult error =
      encode(&made, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, const_cast<void*>(shape.base), sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(error == CUDA_SUCCESS, "a tensor of ", shape.sizes[0], " x ", shape.sizes[1], " x ",
        shape.sizes[2], " x ", shape.sizes[3], " numbers cannot be mapped: CUresult ",
        static_cast<int>(error));
  TensorMap map;
  std::memcpy(map.bytes, &made, sizeof made);
  return map;
}

unsigned* next_counters() {
  static std::atomic<unsigned> launches{0};
  static unsigned* const all = [] {
    void* address = nullptr;
    check_cuda(cudaGetSymbolAddress(&address, counters), "counters of attention");
    return static_cast<unsigned*>(address);
  }();
  return all + 2 * (launches++ % pairs);
}

}  // namespace sm_90a
}  // namespace trireme::kernels
