#pragma once

#include <trireme/architecture/saved.hpp>
#include <trireme/checkpoint/shard.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <cstddef>

namespace trireme::train {

/// A part of a local array in the form in which checkpoints write it.
template <class T>
checkpoint::SliceView slice_of(const Exec& exec, const NamedTensor<T>& tensor,
                               const architecture::SavedPart& part) {
  checkpoint::SliceView slice{tensor.name, dtype_of<T>, tensor.shape, part.offset, part.extent};
  T* first = tensor.data.data() + part.first;
  if constexpr (exec_on_host)
    slice.data = first;
  else
    slice.copy = [&exec, first](std::int64_t begin, std::int64_t bytes, void* out) {
      const auto n = static_cast<std::size_t>(bytes) / sizeof(T);
      copy_to_host<T>(exec, {static_cast<T*>(out), n},
                      View1<T>(first + begin / static_cast<std::int64_t>(sizeof(T)), n),
                      "train/share copies numbers to the host");
    };
  return slice;
}

}  // namespace trireme::train
