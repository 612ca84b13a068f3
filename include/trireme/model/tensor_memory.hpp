#pragma once

#include <trireme/architecture/ends.hpp>
#include <trireme/base/check.hpp>
#include <trireme/model/parameters.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::model {

/// Memory of the tensors of a block that have the home `home`, as views by name. An unknown name
/// gives an empty view. `others`: memory of tensors with other homes, by index of the tensor, in
/// which tensors of this home may be stored. `part` and `sizes` must outlive this object.
template <class P>
class TensorMemory {
 public:
  using T = typename P::Compute;

  TensorMemory(Arena& arena, const architecture::BlockDescription& part, architecture::Home home,
               const architecture::RankSizes& sizes, std::vector<std::byte*> others = {})
      : part_(part), sizes_(sizes), data_(std::move(others)) {
    data_.resize(part.tensors.size(), nullptr);
    for (std::size_t i = 0; i < data_.size(); ++i) {
      const architecture::Tensor& t = part.tensors[i];
      if (t.home != home) continue;
      data_[i] =
          architecture::shares_memory(part, t, element, accumulate)
              ? data_[static_cast<std::size_t>(t.stored_in)]
              : arena.take<std::byte>(architecture::bytes_of(t, sizes, element, accumulate)).data();
    }
  }

  const std::vector<std::byte*>& data() const { return data_; }

  /// View [rows, columns] of a tensor; rows are stride_of() elements apart.
  template <class U = T>
  View2<U> matrix(std::string_view name) const {
    const auto t = std::ranges::find(part_.tensors, name, &architecture::Tensor::name);
    if (t == part_.tensors.end()) return {};
    check(architecture::bytes_of(t->numbers, element, accumulate) == sizeof(U), "tensor ", name,
          " as numbers of ", sizeof(U), " bytes");
    const View2<U> padded(
        reinterpret_cast<U*>(data_[static_cast<std::size_t>(t - part_.tensors.begin())]),
        static_cast<std::size_t>(architecture::rows_of(t->rows, sizes_)),
        static_cast<std::size_t>(architecture::stride_of(*t, sizes_, element, accumulate)));
    return first_columns(padded, architecture::columns_of(t->columns, sizes_));
  }
  /// View [rows · columns] of a tensor.
  template <class U>
  View1<U> list(std::string_view name) const {
    return flat(matrix<U>(name));
  }

 private:
  static constexpr Bytes element = sizeof(T);
  static constexpr Bytes accumulate = sizeof(Accumulate<T>);

  const architecture::BlockDescription& part_;
  const architecture::RankSizes& sizes_;
  std::vector<std::byte*> data_;
};

}  // namespace trireme::model
