#pragma once

#include <cstdint>

/// A stand-in for the part of cuBLASLt that kernels/cublaslt.cpp calls, on host memory. It follows
/// the documentation of layouts, transpositions, scaling, epilogues, types, alignments and
/// workspaces, and computes naively and at once. It shows that our descriptors ask for the products
/// that we mean. It cannot show the properties of the library's own kernels: speed, available
/// algorithms, rounding, or the use of streams.
namespace trireme::testing::stand_in {

struct Record {
  std::int64_t objects = 0;     ///< live handles, descriptors, layouts and preferences
  std::int64_t heuristics = 0;  ///< calls
  std::int64_t products = 0;    ///< calls that succeeded
  std::int64_t in_parts = 0;    ///< products whose sums were cut in parts, in the workspace
  std::int64_t invalid = 0;     ///< calls that are invalid by the documentation
  bool has_products = true;     ///< false: the heuristics find nothing
  void* stream = nullptr;       ///< of the last product
};

Record& record();

}  // namespace trireme::testing::stand_in
