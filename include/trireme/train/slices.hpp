#pragma once

#include <trireme/architecture/saved.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trireme::train {

/// A part of a local array, in the form in which checkpoints write it.
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

/// A part of frozen weights, in the type of weights in checkpoints: fp32 for two-byte weights.
template <class T>
checkpoint::SliceView frozen_slice_of(const Exec& exec, const NamedTensor<T>& tensor,
                                      const architecture::SavedPart& part) {
  checkpoint::SliceView slice = slice_of(exec, tensor, part);
  if constexpr (is_narrow<T>) {
    slice.dtype = DType::fp32;
    slice.data = nullptr;
    T* first = tensor.data.data() + part.first;
    slice.copy = [&exec, first](std::int64_t begin, std::int64_t bytes, void* out) {
      const auto n = static_cast<std::size_t>(bytes) / sizeof(float);
      std::vector<T> narrow(n);
      copy_to_host<T>(exec, std::span<T>(narrow),
                      View1<T>(first + begin / std::int64_t{sizeof(float)}, n),
                      "train/share copies numbers to the host");
      std::ranges::transform(narrow, static_cast<float*>(out),
                             [](T x) { return static_cast<float>(x); });
    };
  }
  return slice;
}

}  // namespace trireme::train
