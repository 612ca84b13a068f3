#pragma once

/// Marks a small function for hosts and devices, in headers that do not depend on Kokkos.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define TRIREME_FUNCTION __host__ __device__ inline
#else
#define TRIREME_FUNCTION inline
#endif

/// Marks a function for devices. Builds for hosts compile it for tests.
#if defined(__CUDACC__)
#define TRIREME_DEVICE_FUNCTION __device__ __forceinline__
#elif defined(__HIPCC__)
#define TRIREME_DEVICE_FUNCTION __device__ inline __attribute__((always_inline))
#else
#define TRIREME_DEVICE_FUNCTION inline
#endif
