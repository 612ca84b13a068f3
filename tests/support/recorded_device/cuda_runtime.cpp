#include <cuda_runtime.h>

#include <cstdint>

#include "support/recorded_device/recorded_device.hpp"

using trireme::testing::number_of;
using trireme::testing::recorded_device;

namespace {

int number_of_event(cudaEvent_t event) {
  return static_cast<int>(reinterpret_cast<std::size_t>(event));
}

/// The code of an injected failure, or that of `work`.
template <class Work>
cudaError_t called(const char* function, const Work& work) {
  if (const int code = recorded_device().enter(function); code != 0)
    return static_cast<cudaError_t>(code);
  return work();
}

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "success";
    case cudaErrorInvalidValue:
      return "a wrong value";
    case cudaErrorMemoryAllocation:
      return "no memory left";
    case cudaErrorInvalidResourceHandle:
      return "a wrong handle";
    case cudaErrorNotReady:
      return "not ready";
    case cudaErrorLaunchTimeout:
      return "out of time";
    case cudaErrorLaunchFailure:
      return "a failed launch";
  }
  return "an unknown error";
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return called("cudaDeviceGetStreamPriorityRange", [&] {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return called("cudaStreamCreateWithPriority", [&] {
    if (priority < -5 || priority > 0) return cudaErrorInvalidValue;
    const int number =
        recorded_device().make_stream((flags & cudaStreamNonBlocking) == 0, priority);
    *stream = reinterpret_cast<cudaStream_t>(static_cast<std::size_t>(number));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return called("cudaStreamDestroy", [&] {
    recorded_device().destroy_stream(number_of(stream));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return called("cudaStreamSynchronize", [&] {
    recorded_device().synchronize(number_of(stream));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return called("cudaStreamWaitEvent", [&] {
    recorded_device().wait(number_of(stream), number_of_event(event));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return called("cudaEventCreateWithFlags", [&] {
    const int number = recorded_device().make_event();
    *event = reinterpret_cast<cudaEvent_t>(static_cast<std::size_t>(number));
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return called("cudaEventDestroy", [&] {
    recorded_device().destroy_event(number_of_event(event));
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return called("cudaEventRecord", [&] {
    recorded_device().record(number_of_event(event), number_of(stream));
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return called("cudaEventQuery", [&] {
    bool stuck = false;
    if (recorded_device().query(number_of_event(event), stuck)) return cudaSuccess;
    return stuck ? cudaErrorLaunchTimeout : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return called("cudaEventSynchronize", [&] {
    bool stuck = false;
    while (!recorded_device().query(number_of_event(event), stuck))
      if (stuck) return cudaErrorLaunchTimeout;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return called("cudaMemcpyAsync", [&] {
    recorded_device().copy(number_of(stream), to, from, bytes);
    return cudaSuccess;
  });
}
