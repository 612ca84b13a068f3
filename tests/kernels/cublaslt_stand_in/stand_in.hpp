#pragma once

#include <cstdint>

/// A stand-in for the part of cuBLASLt that kernels/cublaslt.cpp calls, on host memory: what the
/// documentation says of layouts, transpositions, scaling, epilogues, types, alignments and
/// workspaces, computed naively and at once. It shows that our descriptors ask for the products
/// that we mean. It cannot show what the library's own kernels do: neither their speed, nor which
/// algorithms there are, nor their rounding, nor anything of streams.
namespace trireme::testing::stand_in {

struct Record {
  std::int64_t objects = 0;     ///< handles, descriptors, layouts and preferences that are alive
  std::int64_t heuristics = 0;  ///< calls
  std::int64_t products = 0;    ///< calls that succeeded
  std::int64_t in_parts = 0;    ///< of those, whose sums were cut in parts, in the workspace
  std::int64_t invalid = 0;     ///< calls that the documentation calls invalid
  bool has_products = true;     ///< false: the heuristics find nothing
  void* stream = nullptr;       ///< of the last product
};

Record& record();

}  // namespace trireme::testing::stand_in
