#pragma once

#include <trireme/base/types.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::train {

/// A whole array in host memory, as a checkpoint stores it.
struct HostArray {
  std::string name;
  DType dtype = DType::fp32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

/// A slice [offset, offset + extent) of one; empty bytes: none of it.
struct HostSlice {
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> extent;
  std::vector<std::byte> bytes;
};

/// Copies a slice to the host. Waits.
template <class T>
HostSlice to_host_slice(const Exec& exec, const NamedTensor<T>& tensor) {
  HostSlice slice{tensor.offset, tensor.extent,
                  std::vector<std::byte>(static_cast<std::size_t>(tensor.elements()) * sizeof(T))};
  const std::span<T> values(reinterpret_cast<T*>(slice.bytes.data()),
                            static_cast<std::size_t>(tensor.elements()));
  copy_to_host<T>(exec, values, tensor.data, "train/save copies an array to the host");
  return slice;
}

/// Fills `whole` (name, type and shape given) on rank 0 from the slices of all ranks, which tile
/// it. Elsewhere `whole` stays without bytes. Collective.
void gather_slices(grid::Communicator& group, HostArray& whole, const HostSlice& mine);

}  // namespace trireme::train
