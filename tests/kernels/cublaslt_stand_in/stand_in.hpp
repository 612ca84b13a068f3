#pragma once

#include <cstdint>

/// A stand-in for the functions of cuBLASLt called by kernels/cublaslt.cpp, on host memory. It
/// follows the documentation of layouts, transpositions, scaling, epilogues, types, alignments and
/// workspaces, and computes naively and synchronously. It shows that our descriptors request the
/// intended products. It cannot show properties of the library's kernels: speed, available
/// algorithms, rounding, or the use of streams.
namespace trireme::testing::stand_in {

struct Record {
  std::int64_t objects = 0;     ///< live handles, descriptors, layouts and preferences
  std::int64_t heuristics = 0;  ///< calls
  std::int64_t products = 0;    ///< calls that succeeded
  std::int64_t in_parts = 0;    ///< products with partial sums in the workspace
  std::int64_t invalid = 0;     ///< calls that are invalid by the documentation
  bool has_products = true;     ///< false: the heuristics find no algorithm
  void* stream = nullptr;       ///< of the last product
};

Record& record();

}  // namespace trireme::testing::stand_in
