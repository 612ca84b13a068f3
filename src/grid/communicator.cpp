#include <trireme/base/check.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/fence.hpp>

#include <mpi.h>

#include <sched.h>

#include <algorithm>
#include <climits>
#include <type_traits>
#include <utility>

namespace trireme::grid {
namespace {

void mpi(int code, const char* what, const std::string& communicator) {
  if (code == MPI_SUCCESS) return;
  char message[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, message, &length);
  throw Error(text("MPI: ", what, " on ", communicator, ": ",
                   std::string_view(message, static_cast<size_t>(length))));
}

template <class T>
MPI_Datatype datatype();
template <>
MPI_Datatype datatype<float>() {
  return MPI_FLOAT;
}
template <>
MPI_Datatype datatype<double>() {
  return MPI_DOUBLE;
}
template <>
MPI_Datatype datatype<std::int64_t>() {
  return MPI_INT64_T;
}

MPI_Op operation(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return MPI_SUM;
    case Reduction::maximum:
      return MPI_MAX;
    case Reduction::minimum:
      return MPI_MIN;
  }
  return MPI_OP_NULL;
}

int count(std::size_t elements) {
  check(elements <= static_cast<std::size_t>(INT_MAX), "one MPI message of ", elements,
        " elements; use smaller buckets ([parallel] bucket_bytes)");
  return static_cast<int>(elements);
}

/// Kernels have run when their launch returns.
#if defined(KOKKOS_ENABLE_SERIAL)
constexpr bool in_calling_thread = std::is_same_v<Exec, Kokkos::Serial>;
#else
constexpr bool in_calling_thread = false;
#endif

template <class Space>
auto bytes_at(std::byte* data, std::size_t bytes) {
  return Kokkos::View<std::byte*, Space, Unmanaged>(data, bytes);
}

}  // namespace

Communicator::Communicator(MPI_Comm communicator, std::string name)
    : communicator_(communicator), name_(std::move(name)) {
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  mpi(MPI_Comm_rank(communicator_, &rank_), "rank", name_);
  mpi(MPI_Comm_size(communicator_, &size_), "size", name_);
}

Communicator::~Communicator() {
  if (communicator_ != MPI_COMM_WORLD && communicator_ != MPI_COMM_SELF)
    MPI_Comm_free(&communicator_);
}

void Communicator::wait(MPI_Request& request, const char* what) {
  int done = 0;
  mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what, name_);
  while (done == 0) {
    sched_yield();
    mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what, name_);
  }
}

void Communicator::wait(Request& request, const char* what) {
  if (request.active()) wait(request.request_, what);
  if (!request.staged_) return;
  const Request::Staged staged = *std::exchange(request.staged_, std::nullopt);
  Kokkos::deep_copy(staged.exec, bytes_at<Memory>(staged.to, staged.bytes),
                    bytes_at<StagingMemory>(staged.buffer.data(), staged.bytes));
  fence(staged.exec, "grid/wait copies a result to the device");
  idle_buffers_.push_back(staged.buffer);
}

StagingBuffer Communicator::take_buffer(std::size_t bytes) {
  const auto fits = std::find_if(idle_buffers_.begin(), idle_buffers_.end(),
                                 [&](const StagingBuffer& b) { return b.extent(0) >= bytes; });
  if (fits == idle_buffers_.end()) return StagingBuffer("grid/staging", bytes);
  const StagingBuffer buffer = *fits;
  idle_buffers_.erase(fits);
  return buffer;
}

void Communicator::progress() {
  if (size_ == 1) return;
  int flag = 0;
  mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &flag, MPI_STATUS_IGNORE), "progress",
      name_);
}

template <class T>
Request Communicator::start_all_reduce(const Exec& exec, View1<T> data, Reduction reduction) {
  Request request;
  if (size_ == 1 || data.extent(0) == 0) return request;
  void* on_host = data.data();
  if (staged_) {
    const std::size_t bytes = data.extent(0) * sizeof(T);
    auto* device = reinterpret_cast<std::byte*>(data.data());
    request.staged_ = {exec, take_buffer(bytes), device, bytes};
    on_host = request.staged_->buffer.data();
    Kokkos::deep_copy(exec, bytes_at<StagingMemory>(request.staged_->buffer.data(), bytes),
                      bytes_at<Memory>(device, bytes));
  }
  if (!in_calling_thread) fence(exec, "grid/all_reduce reads what kernels wrote");
  mpi(MPI_Iallreduce(MPI_IN_PLACE, on_host, count(data.extent(0)), datatype<T>(),
                     operation(reduction), communicator_, &request.request_),
      "all_reduce", name_);
  return request;
}

template <class T>
void Communicator::all_reduce(const Exec& exec, View1<T> data, Reduction reduction,
                              const char* what) {
  Request request = start_all_reduce(exec, data, reduction);
  wait(request, what);
}

template <class T>
void Communicator::all_reduce(std::span<T> data, Reduction reduction, const char* what) {
  if (size_ == 1) return;
  MPI_Request request = MPI_REQUEST_NULL;
  mpi(MPI_Iallreduce(MPI_IN_PLACE, data.data(), count(data.size()), datatype<T>(),
                     operation(reduction), communicator_, &request),
      what, name_);
  wait(request, what);
}

void Communicator::broadcast(std::span<std::byte> data, int root, const char* what) {
  if (size_ == 1) return;
  MPI_Request request = MPI_REQUEST_NULL;
  mpi(MPI_Ibcast(data.data(), count(data.size()), MPI_BYTE, root, communicator_, &request), what,
      name_);
  wait(request, what);
}

std::string Communicator::broadcast(const std::string& value, int root, const char* what) {
  const auto sizes = all_gather(static_cast<std::int64_t>(value.size()), what);
  std::string out = value;
  out.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(root)]));
  broadcast(std::as_writable_bytes(std::span(out)), root, what);
  return out;
}

std::vector<std::int64_t> Communicator::all_gather(std::int64_t value, const char* what) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_), value);
  if (size_ == 1) return all;
  MPI_Request request = MPI_REQUEST_NULL;
  mpi(MPI_Iallgather(&value, 1, MPI_INT64_T, all.data(), 1, MPI_INT64_T, communicator_, &request),
      what, name_);
  wait(request, what);
  return all;
}

std::vector<std::string> Communicator::gather(const std::string& value, int root,
                                              const char* what) {
  if (size_ == 1) return {value};
  const auto sizes = all_gather(static_cast<std::int64_t>(value.size()), what);
  std::vector<int> counts;
  std::vector<int> offsets;
  std::int64_t total = 0;
  for (const std::int64_t n : sizes) {
    counts.push_back(count(static_cast<std::size_t>(n)));
    offsets.push_back(count(static_cast<std::size_t>(total)));
    total += n;
  }
  std::string joined(rank_ == root ? static_cast<std::size_t>(total) : 0, '\0');
  MPI_Request request = MPI_REQUEST_NULL;
  mpi(MPI_Igatherv(value.data(), count(value.size()), MPI_BYTE, joined.data(), counts.data(),
                   offsets.data(), MPI_BYTE, root, communicator_, &request),
      what, name_);
  wait(request, what);
  std::vector<std::string> parts;
  for (std::size_t i = 0; rank_ == root && i < sizes.size(); ++i)
    parts.push_back(
        joined.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(counts[i])));
  return parts;
}

std::unique_ptr<Communicator> Communicator::split(int colour, int position, std::string name) {
  MPI_Comm part = MPI_COMM_NULL;
  mpi(MPI_Comm_split(communicator_, colour, position, &part), "split", name_);
  return std::make_unique<Communicator>(part, std::move(name));
}

std::unique_ptr<Communicator> Communicator::self() {
  return std::make_unique<Communicator>(MPI_COMM_SELF, "self");
}

void Communicator::barrier(const char* what) {
  if (size_ == 1) return;
  MPI_Request request = MPI_REQUEST_NULL;
  mpi(MPI_Ibarrier(communicator_, &request), what, name_);
  wait(request, what);
}

#define TRIREME_INSTANTIATE(T)                                                              \
  template Request Communicator::start_all_reduce<T>(const Exec&, View1<T>, Reduction);     \
  template void Communicator::all_reduce<T>(const Exec&, View1<T>, Reduction, const char*); \
  template void Communicator::all_reduce<T>(std::span<T>, Reduction, const char*);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(std::int64_t)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::grid
