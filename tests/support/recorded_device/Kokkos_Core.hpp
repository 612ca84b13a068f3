#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "support/recorded_device/recorded_device.hpp"

/// The subset of Kokkos used by tensor/ and grid/ as in a build for CUDA, on the recorded device.
/// Kernels run on the host when the device reaches them.
#define KOKKOS_ENABLE_CUDA
#define KOKKOS_VERSION 40701

namespace Kokkos {

struct HostSpace {
  static constexpr auto kind = trireme::testing::RecordedDevice::MemoryKind::pageable;
};
struct SharedHostPinnedSpace {
  static constexpr auto kind = trireme::testing::RecordedDevice::MemoryKind::pinned;
};
struct CudaSpace {
  static constexpr auto kind = trireme::testing::RecordedDevice::MemoryKind::device;
};

/// Copies share a stream's instance. Kokkos uses the stream once more when the last copy ends.
class Cuda {
 public:
  using memory_space = CudaSpace;
  Cuda() : Cuda(cudaStream_t{}) {}
  explicit Cuda(cudaStream_t stream)
      : stream_(std::shared_ptr<CUstream_st*>(new CUstream_st*(stream), [](CUstream_st** s) {
          if (*s != nullptr) (void)cudaStreamSynchronize(*s);
          delete s;
        })) {}
  cudaStream_t cuda_stream() const { return *stream_; }
  void fence(const std::string& = "") const { (void)cudaStreamSynchronize(*stream_); }
  int concurrency() const { return 1 << 16; }

 private:
  std::shared_ptr<CUstream_st*> stream_;
};
struct Serial {
  using memory_space = HostSpace;
};
using DefaultExecutionSpace = Cuda;
using DefaultHostExecutionSpace = Serial;

template <class Execution, class Space>
struct Device {
  using memory_space = Space;
};
struct LayoutRight {};
inline constexpr int Unmanaged = 1;
template <int flags>
struct MemoryTraits {};
struct AutoOrAll {};
inline constexpr AutoOrAll AUTO, ALL;
struct WithoutInitializing_t {};
inline constexpr WithoutInitializing_t WithoutInitializing;

template <class From, class To>
struct SpaceAccessibility {
  static constexpr bool accessible = std::is_same_v<From, Serial> ? !std::is_same_v<To, CudaSpace>
                                                                  : !std::is_same_v<To, HostSpace>;
};

namespace parts {

template <class T>
struct Array {
  using value = T;
  static constexpr std::size_t rank = 0;
};
template <class T>
struct Array<T*> {
  using value = typename Array<T>::value;
  static constexpr std::size_t rank = 1 + Array<T>::rank;
};

template <class Property, class = void>
struct Space {
  using type = Property;
  static constexpr bool given = false;
};
template <class Property>
struct Space<Property, std::void_t<decltype(Property::kind)>> {
  using type = Property;
  static constexpr bool given = true;
};
template <class Property>
struct Space<Property, std::void_t<typename Property::memory_space>> {
  using type = typename Property::memory_space;
  static constexpr bool given = true;
};
template <class... Properties>
struct SpaceOf {
  using type = CudaSpace;
};
template <class First, class... Rest>
struct SpaceOf<First, Rest...> {
  using type =
      typename std::conditional_t<Space<First>::given, Space<First>, SpaceOf<Rest...>>::type;
};

}  // namespace parts

template <class Data, class... Properties>
class View {
 public:
  using value_type = typename parts::Array<Data>::value;
  using memory_space = typename parts::SpaceOf<Properties...>::type;
  static constexpr std::size_t rank = parts::Array<Data>::rank;

  View() = default;
  template <class... Sizes>
  requires(sizeof...(Sizes) == rank &&
           (std::is_integral_v<Sizes> && ...)) explicit View(value_type* data, Sizes... sizes)
      : data_(data), sizes_{static_cast<std::size_t>(sizes)...} {}
  View(const std::string& label, std::size_t size) : sizes_{size} {
    auto& device = trireme::testing::recorded_device();
    owned_ =
        std::shared_ptr<void>(device.allocate(size * sizeof(value_type), memory_space::kind, label),
                              [&device](void* memory) { device.free(memory); });
    data_ = static_cast<value_type*>(owned_.get());
  }
  template <class OtherData, class... OtherProperties>
  requires(std::is_convertible_v<typename parts::Array<OtherData>::value*, value_type*>)
      View(const View<OtherData, OtherProperties...>& other)
      : data_(other.data()) {
    for (std::size_t i = 0; i < rank; ++i) sizes_[i] = other.extent(i);
  }

  value_type* data() const { return data_; }
  std::size_t extent(std::size_t i) const { return sizes_[i]; }
  std::size_t size() const {
    std::size_t n = 1;
    for (const std::size_t s : sizes_) n *= s;
    return n;
  }

 private:
  value_type* data_ = nullptr;
  std::array<std::size_t, rank> sizes_{};
  std::shared_ptr<void> owned_;
};

inline std::string view_alloc(WithoutInitializing_t, const std::string& label) {
  return label;
}
template <class View, class... Slices>
View subview(const View& view, const Slices&... slices);  // named, but never called

template <class To, class From>
void deep_copy(const Cuda& exec, const To& to, const From& from) {
  (void)cudaMemcpyAsync(to.data(), from.data(), to.size() * sizeof(typename To::value_type),
                        cudaMemcpyDefault, exec.cuda_stream());
}

template <class Execution>
struct RangePolicy {
  Execution exec;
  std::int64_t begin, end;
  RangePolicy(const Execution& e, std::int64_t b, std::int64_t n) : exec(e), begin(b), end(n) {}
};

template <class Execution, class Body>
void parallel_for(const std::string& label, const RangePolicy<Execution>& policy,
                  const Body& body) {
  const std::int64_t begin = policy.begin, end = policy.end;
  trireme::testing::recorded_device().launch(trireme::testing::number_of(policy.exec.cuda_stream()),
                                             label, {}, [=] {
                                               for (std::int64_t i = begin; i < end; ++i) body(i);
                                             });
}

}  // namespace Kokkos
