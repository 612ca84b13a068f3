#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

/// A slice of a global array: its name and global shape, the part [offset, offset + extent) held
/// here, and the elements, contiguous in the slice's own shape. Initialisation, checkpoints and
/// optimizers work on lists of these, so that none of them knows about layouts.
template <class T>
struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;   ///< global
  std::vector<std::int64_t> offset;  ///< offset of the slice per axis
  std::vector<std::int64_t> extent;  ///< extent of the slice per axis
  View1<T> data;

  std::int64_t elements() const { return trireme::extent(data, 0); }
};

}  // namespace trireme
