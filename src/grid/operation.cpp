#include <trireme/base/check.hpp>
#include <trireme/grid/operation.hpp>
#include <trireme/layout/split.hpp>

#include <algorithm>
#include <climits>

namespace trireme::grid {

template <>
MPI_Datatype datatype<float>();
template <>
MPI_Datatype datatype<double>();

namespace {

/// Up to so much all ranks gather everything and sum it for themselves: one exchange instead of
/// two.
constexpr std::int64_t gathered_bytes = 64 * 1024;
/// … and so few numbers always, however many ranks: a message per rank would cost more.
constexpr std::int64_t few_bytes = 256;
/// Parts are cut between cache lines.
constexpr std::int64_t line_bytes = 64;

bool gathers(std::int64_t bytes, int ranks) {
  return bytes <= few_bytes || bytes * ranks <= gathered_bytes;
}

std::int64_t length(const Operation& o, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return o.offsets[r + 1] - o.offsets[r];
}

/// Where the part of `rank` begins in `base`.
template <class T, class Byte>
auto part(Byte* base, const Operation& o, int rank) {
  return base + o.offsets[static_cast<std::size_t>(rank)] * static_cast<std::int64_t>(sizeof(T));
}

/// `n` elements from `at` to `peer` (sends) or from it.
template <class T>
void post(Operation& o, bool sends, const std::byte* at, std::int64_t n, int peer, int tag) {
  if (n == 0) return;
  MPI_Request& request = o.messages.emplace_back(MPI_REQUEST_NULL);
  const int code = sends
                       ? MPI_Isend(at, message_count(n), datatype<T>(), peer, tag, o.mpi, &request)
                       : MPI_Irecv(const_cast<std::byte*>(at), message_count(n), datatype<T>(),
                                   peer, tag, o.mpi, &request);
  expect_mpi(code, o.verb, o.communicator);
}

/// Every rank's input of this rank's part, in rank order, to scratch.
template <class T>
void exchange_parts(Operation& o) {
  const int ranks = o.ranks;
  const std::int64_t mine = length(o, o.rank);
  o.parts.resize(static_cast<std::size_t>(ranks));
  o.parts[static_cast<std::size_t>(o.rank)] = part<T>(o.whole, o, o.rank);
  std::byte* slot = o.scratch.data();
  for (int k = 1; k < ranks; ++k) {
    const int peer = (o.rank + k) % ranks;
    o.parts[static_cast<std::size_t>(peer)] = slot;
    post<T>(o, false, slot, mine, peer, o.tag);
    slot += mine * static_cast<std::int64_t>(sizeof(T));
  }
  for (int k = 1; k < ranks; ++k) {
    const int peer = (o.rank + k) % ranks;
    post<T>(o, true, part<T>(o.whole, o, peer), length(o, peer), peer, o.tag);
  }
}

template <class T>
void sum_parts(Operation& o) {
  o.then = nullptr;
  sum_in_order(reinterpret_cast<T*>(o.result), o.parts, length(o, o.rank));
}

/// This rank's part is summed: everyone gets it.
template <class T>
void sum_and_share(Operation& o) {
  sum_parts<T>(o);
  const int ranks = o.ranks;
  for (int k = 1; k < ranks; ++k) {
    const int peer = (o.rank + k) % ranks;
    post<T>(o, false, part<T>(o.whole, o, peer), length(o, peer), peer, o.tag + 1);
  }
  for (int k = 1; k < ranks; ++k)
    post<T>(o, true, o.result, length(o, o.rank), (o.rank + k) % ranks, o.tag + 1);
}

template <class T>
void sum_gathered(Operation& o) {
  o.then = nullptr;
  sum_in_order(reinterpret_cast<T*>(o.result), o.parts, o.offsets[0]);
}

std::vector<Operation*>& pending() {
  static std::vector<Operation*> operations;
  return operations;
}

}  // namespace

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

void expect_mpi(int code, const char* what, const std::string& communicator) {
  if (code == MPI_SUCCESS) return;
  char message[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, message, &length);
  throw Error(text("MPI: ", what, " on ", communicator, ": ",
                   std::string_view(message, static_cast<std::size_t>(length))));
}

int message_count(std::int64_t elements) {
  check(elements <= INT_MAX, "one MPI message of ", elements, " elements, but MPI counts to ",
        INT_MAX, "; use smaller buckets ([parallel] bucket_bytes) or micro-batches");
  return static_cast<int>(elements);
}

template <class T>
void sum_in_order(T* out, std::span<const std::byte* const> parts, std::int64_t n) {
  const auto summand = [&](std::size_t k) { return reinterpret_cast<const T*>(parts[k]); };
  if (parts.size() == 2) {
    const T* a = summand(0);
    const T* b = summand(1);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
    return;
  }
  constexpr std::int64_t block = 1024;  // stays in the first cache
  T sums[block];
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t size = std::min(block, n - begin);
    std::copy_n(summand(0) + begin, size, sums);
    for (std::size_t k = 1; k < parts.size(); ++k) {
      const T* next = summand(k) + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) sums[i] += next[i];
    }
    std::copy_n(sums, size, out + begin);
  }
}

std::int64_t ordered_sum_scratch_bytes(std::int64_t n, std::int64_t size, int ranks) {
  if (gathers(n * size, ranks)) return n * size * ranks;
  return ((n * size + ranks - 1) / ranks + line_bytes) * (ranks - 1);
}

template <class T>
void post_ordered_sum(Operation& o, T* data, std::int64_t n) {
  constexpr std::int64_t size = sizeof(T);
  const int ranks = o.ranks;
  o.result = reinterpret_cast<std::byte*>(data);
  o.messages.clear();
  if (gathers(n * size, ranks)) {
    o.offsets.assign(1, n);
    o.parts.clear();
    for (int r = 0; r < ranks; ++r) o.parts.push_back(o.scratch.data() + r * n * size);
    o.then = sum_gathered<T>;
    expect_mpi(
        MPI_Iallgather(data, message_count(n), datatype<T>(), o.scratch.data(), message_count(n),
                       datatype<T>(), o.mpi, &o.messages.emplace_back(MPI_REQUEST_NULL)),
        o.verb, o.communicator);
    return;
  }
  constexpr std::int64_t line = line_bytes / size;
  o.offsets.clear();
  for (int r = 0; r < ranks; ++r)
    o.offsets.push_back(std::min(n, layout::split((n + line - 1) / line, ranks, r).offset * line));
  o.offsets.push_back(n);
  o.whole = o.result;
  o.result = part<T>(o.result, o, o.rank);
  o.then = sum_and_share<T>;
  exchange_parts<T>(o);
}

template <class T>
void post_reduce_scatter(Operation& o) {
  o.messages.clear();
  o.then = sum_parts<T>;
  exchange_parts<T>(o);
}

bool advance(Operation& o) {
  for (;;) {
    int done = 1;
    if (!o.messages.empty())
      expect_mpi(MPI_Testall(static_cast<int>(o.messages.size()), o.messages.data(), &done,
                             MPI_STATUSES_IGNORE),
                 o.verb, o.communicator);
    if (done == 0) return false;
    o.messages.clear();
    if (o.then == nullptr) return true;
    o.then(o);
  }
}

void add_pending(Operation& operation) {
  pending().push_back(&operation);
}

void remove_pending(Operation& operation) {
  std::erase(pending(), &operation);
}

void advance_pending() {
  for (Operation* operation : pending()) advance(*operation);
}

#define TRIREME_INSTANTIATE(T)                                                        \
  template void sum_in_order<T>(T*, std::span<const std::byte* const>, std::int64_t); \
  template void post_ordered_sum<T>(Operation&, T*, std::int64_t);                    \
  template void post_reduce_scatter<T>(Operation&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::grid
