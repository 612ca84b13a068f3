#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

/// A slice of a global array: the array's name and shape, the part [offset, offset + extent) that
/// this rank holds, and the elements, contiguous in the slice's own shape.
template <class T>
struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;   ///< shape of the global array
  std::vector<std::int64_t> offset;  ///< offset of the slice per axis
  std::vector<std::int64_t> extent;  ///< extent of the slice per axis
  View1<T> data;

  std::int64_t elements() const { return trireme::extent(data, 0); }
};

}  // namespace trireme
