#pragma once

/// A small function for hosts and devices alike, in headers that need not know Kokkos.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define TRIREME_FUNCTION __host__ __device__ inline
#else
#define TRIREME_FUNCTION inline
#endif

/// A function of code that only a device runs, where there is one; tests run it on hosts.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define TRIREME_DEVICE_FUNCTION __device__ __forceinline__
#else
#define TRIREME_DEVICE_FUNCTION inline
#endif
