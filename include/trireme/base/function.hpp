#pragma once

/// A small function for hosts and devices alike, in headers that need not know Kokkos.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define TRIREME_FUNCTION __host__ __device__ inline
#else
#define TRIREME_FUNCTION inline
#endif
