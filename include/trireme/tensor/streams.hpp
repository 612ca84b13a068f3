#pragma once

#include <trireme/base/check.hpp>
#include <trireme/tensor/views.hpp>

#include <cstddef>

#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP)
#define TRIREME_HAS_STREAMS

/// Streams and events of CUDA and HIP under common names.
namespace trireme::streams {

#if defined(KOKKOS_ENABLE_CUDA)
using Stream = cudaStream_t;
using Event = cudaEvent_t;
using Status = cudaError_t;
inline constexpr Status success = cudaSuccess;
inline constexpr Status not_ready = cudaErrorNotReady;
inline const char* name_of(Status status) {
  return cudaGetErrorString(status);
}
inline Status create(Stream* s, bool urgent = false) {
  int least = 0;
  int greatest = 0;
  if (const Status status = cudaDeviceGetStreamPriorityRange(&least, &greatest); status != success)
    return status;
  return cudaStreamCreateWithPriority(s, cudaStreamNonBlocking, urgent ? greatest : least);
}
inline Status destroy(Stream s) {
  return cudaStreamDestroy(s);
}
inline Status create(Event* e) {
  return cudaEventCreateWithFlags(e, cudaEventDisableTiming);
}
inline Status destroy(Event e) {
  return cudaEventDestroy(e);
}
inline Status record(Event e, Stream s) {
  return cudaEventRecord(e, s);
}
inline Status query(Event e) {
  return cudaEventQuery(e);
}
inline Status synchronize(Event e) {
  return cudaEventSynchronize(e);
}
inline Status wait(Stream s, Event e) {
  return cudaStreamWaitEvent(s, e, 0);
}
inline Status copy(void* to, const void* from, std::size_t bytes, Stream s) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s);
}
inline Stream stream_of(const Exec& exec) {
  return exec.cuda_stream();
}
#else
using Stream = hipStream_t;
using Event = hipEvent_t;
using Status = hipError_t;
inline constexpr Status success = hipSuccess;
inline constexpr Status not_ready = hipErrorNotReady;
inline const char* name_of(Status status) {
  return hipGetErrorString(status);
}
inline Status create(Stream* s, bool urgent = false) {
  int least = 0;
  int greatest = 0;
  if (const Status status = hipDeviceGetStreamPriorityRange(&least, &greatest); status != success)
    return status;
  return hipStreamCreateWithPriority(s, hipStreamNonBlocking, urgent ? greatest : least);
}
inline Status destroy(Stream s) {
  return hipStreamDestroy(s);
}
inline Status create(Event* e) {
  return hipEventCreateWithFlags(e, hipEventDisableTiming);
}
inline Status destroy(Event e) {
  return hipEventDestroy(e);
}
inline Status record(Event e, Stream s) {
  return hipEventRecord(e, s);
}
inline Status query(Event e) {
  return hipEventQuery(e);
}
inline Status synchronize(Event e) {
  return hipEventSynchronize(e);
}
inline Status wait(Stream s, Event e) {
  return hipStreamWaitEvent(s, e, 0);
}
inline Status copy(void* to, const void* from, std::size_t bytes, Stream s) {
  return hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, s);
}
inline Stream stream_of(const Exec& exec) {
  return exec.hip_stream();
}
#endif

inline void expect_success(Status status, const char* what) {
  check(status == success, "device error while ", what, ": ", name_of(status));
}

/// A stream and an Exec on it. `urgent`: with the highest priority.
class OwnStream {
 public:
  explicit OwnStream(bool urgent) {
    expect_success(create(&stream_, urgent), "creating a stream");
    exec_ = Exec(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    exec_ = Exec();
    (void)destroy(stream_);
  }
  Stream stream() const { return stream_; }
  const Exec& exec() const { return exec_; }

 private:
  Stream stream_{};
  Exec exec_;
};

}  // namespace trireme::streams

#endif
