// Verbs made of MPI messages. Sums are taken in rank order and segment by segment, so that the
// memory for the other ranks' inputs is bounded.
#include <trireme/grid/operation.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/crash_delay.hpp>
#include <trireme/base/reduction.hpp>
#include <trireme/grid/message_block.hpp>
#include <trireme/grid/transport_queue.hpp>
#include <trireme/layout/split.hpp>

#include <algorithm>
#include <climits>

namespace trireme::grid {

template <>
MPI_Datatype datatype<float>();
template <>
MPI_Datatype datatype<double>();
template <>
MPI_Datatype datatype<Bf16>();
template <>
MPI_Datatype datatype<Fp16>();
template <>
MPI_Datatype datatype<std::int64_t>();

namespace {

constexpr std::int64_t segment_bytes = reduction_segment_bytes;
/// On up to direct_ranks ranks, an all-gather sends each part to every rank. On more ranks, parts
/// of less than direct_bytes on average are gathered by MPI's own all-gather.
constexpr int direct_ranks = 64;
constexpr std::int64_t direct_bytes = 4 * 1024;
constexpr std::int64_t line_bytes = reduction_line_bytes;

std::int64_t length(const Operation& o, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return o.offsets[r + 1] - o.offsets[r];
}

/// Segment o.segment of the part of `rank`; empty after the end of the part.
template <class T>
layout::Slice segment_of(const Operation& o, int rank) {
  constexpr std::int64_t segment = segment_bytes / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t begin = std::min(o.segment * segment, length(o, rank));
  return {o.offsets[static_cast<std::size_t>(rank)] + begin,
          std::min(segment, length(o, rank) - begin)};
}

template <class T, class Byte>
auto at(Byte* base, std::int64_t element) {
  return base + element * static_cast<std::int64_t>(sizeof(T));
}

template <class T>
void send(Operation& o, const std::byte* data, std::int64_t n, int peer, int tag) {
  if (n == 0) return;
  const MessageBlock block(n, datatype<T>());
  expect_mpi(MPI_Isend(data, block.count(), block.type(), peer, tag, o.mpi,
                       &o.messages.emplace_back(MPI_REQUEST_NULL)),
             o.verb, o.communicator);
}

template <class T>
void receive(Operation& o, std::byte* data, std::int64_t n, int peer, int tag) {
  if (n == 0) return;
  const MessageBlock block(n, datatype<T>());
  expect_mpi(MPI_Irecv(data, block.count(), block.type(), peer, tag, o.mpi,
                       &o.messages.emplace_back(MPI_REQUEST_NULL)),
             o.verb, o.communicator);
}

/// Sends to every other rank this rank's input of that rank's segment, and receives into scratch
/// the other ranks' inputs of this rank's segment.
template <class T>
void exchange_segment(Operation& o) {
  const std::int64_t mine = segment_of<T>(o, o.rank).extent;
  o.parts.resize(static_cast<std::size_t>(o.ranks));
  std::byte* slot = o.scratch.data();
  for (int k = 1; k < o.ranks; ++k) {
    const int peer = (o.rank + k) % o.ranks;
    o.parts[static_cast<std::size_t>(peer)] = slot;
    receive<T>(o, slot, mine, peer, o.tag);
    slot = at<T>(slot, mine);
  }
  for (int k = 1; k < o.ranks; ++k) {
    const int peer = (o.rank + k) % o.ranks;
    const layout::Slice theirs = segment_of<T>(o, peer);
    send<T>(o, at<T>(o.whole, theirs.offset), theirs.extent, peer, o.tag);
  }
}

/// Sends the sum of this rank's segment, which is in `whole`, to all other ranks, and receives the
/// sums of the other ranks' segments.
template <class T>
void share_segment(Operation& o) {
  const layout::Slice mine = segment_of<T>(o, o.rank);
  auto* whole = const_cast<std::byte*>(o.whole);
  for (int k = 1; k < o.ranks; ++k) {
    const int peer = (o.rank + k) % o.ranks;
    const layout::Slice theirs = segment_of<T>(o, peer);
    receive<T>(o, at<T>(whole, theirs.offset), theirs.extent, peer, o.tag + 1);
  }
  for (int k = 1; k < o.ranks; ++k)
    send<T>(o, at<T>(whole, mine.offset), mine.extent, (o.rank + k) % o.ranks, o.tag + 1);
}

/// Called when the inputs of a segment have arrived: sums them, sends the sum if `shares`, and
/// exchanges the inputs of the next segment.
template <class T, bool shares>
void sum_segment(Operation& o) {
  const layout::Slice mine = segment_of<T>(o, o.rank);
  const std::int64_t first = o.offsets[static_cast<std::size_t>(o.rank)];
  o.parts[static_cast<std::size_t>(o.rank)] = at<T>(o.whole, mine.offset);
  sum_in_order(reinterpret_cast<T*>(at<T>(o.result, mine.offset - first)), o.parts, mine.extent);
  if (shares) share_segment<T>(o);
  if (++o.segment < o.segments)
    exchange_segment<T>(o);
  else
    o.then = nullptr;
}

template <class T, bool shares>
void begin_segments(Operation& o) {
  std::int64_t longest = 0;
  for (int r = 0; r < o.ranks; ++r) longest = std::max(longest, length(o, r));
  constexpr std::int64_t segment = segment_bytes / static_cast<std::int64_t>(sizeof(T));
  o.segment = 0;
  o.segments = (longest + segment - 1) / segment;
  o.then = sum_segment<T, shares>;
  exchange_segment<T>(o);
}

template <class T>
void sum_gathered(Operation& o) {
  o.then = nullptr;
  sum_in_order(reinterpret_cast<T*>(o.result), o.parts, length(o, 0));
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
MPI_Datatype datatype<Bf16>() {
  return MPI_UINT16_T;  // MPI moves these values, but does not sum them
}
template <>
MPI_Datatype datatype<Fp16>() {
  return MPI_UINT16_T;
}
template <>
MPI_Datatype datatype<std::int64_t>() {
  return MPI_INT64_T;
}

void expect_mpi(int code, const char* what, const std::string& communicator) {
  if (code == MPI_SUCCESS) return;
  CrashDelay::wait();  // the cause may be the death of a rank; the watchdog reports it
  char message[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, message, &length);
  throw Error(text("MPI: ", what, " on ", communicator, ": ",
                   std::string_view(message, static_cast<std::size_t>(length))));
}

int message_count(std::int64_t elements) {
  check(elements <= INT_MAX, "an MPI message of ", elements,
        " elements is too long; MPI counts at most ", INT_MAX);
  return static_cast<int>(elements);
}

template <class T>
void sum_in_order(T* out, std::span<const std::byte* const> parts, std::int64_t n) {
  using Sum = Accumulate<T>;
  const auto summand = [&](std::size_t k) { return reinterpret_cast<const T*>(parts[k]); };
  if (parts.size() == 2) {
    const T* a = summand(0);
    const T* b = summand(1);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(a[i] + b[i]);
    return;
  }
  constexpr std::int64_t block = 1024;  // fits in the L1 cache
  Sum sums[block];
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t size = std::min(block, n - begin);
    std::copy_n(summand(0) + begin, size, sums);
    for (std::size_t k = 1; k < parts.size(); ++k) {
      const T* next = summand(k) + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) sums[i] += static_cast<Sum>(next[i]);
    }
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) out[begin + i] = static_cast<T>(sums[i]);
  }
}

std::int64_t ordered_sum_scratch_bytes(std::int64_t n, std::int64_t size, int ranks) {
  if (gathers_reduction(n * size, ranks)) return n * size * ranks;
  const std::int64_t part = (n * size + ranks - 1) / ranks + line_bytes;
  return std::min(part, segment_bytes) * (ranks - 1);
}

std::int64_t reduce_scatter_scratch_bytes(std::int64_t mine, std::int64_t size, int ranks) {
  return std::min(mine * size, segment_bytes) * (ranks - 1);
}

template <class T>
void post_all_gather(Operation& o, std::byte* all) {
  const std::int64_t mine = length(o, o.rank);
  if (o.ranks > direct_ranks &&
      o.offsets.back() * static_cast<std::int64_t>(sizeof(T)) < direct_bytes * o.ranks) {
    o.int_counts.clear();
    o.int_offsets.clear();
    for (int r = 0; r < o.ranks; ++r) {
      o.int_counts.push_back(message_count(length(o, r)));
      o.int_offsets.push_back(message_count(o.offsets[static_cast<std::size_t>(r)]));
    }
    expect_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, datatype<T>(), all, o.int_counts.data(),
                               o.int_offsets.data(), datatype<T>(), o.mpi,
                               &o.messages.emplace_back(MPI_REQUEST_NULL)),
               o.verb, o.communicator);
    return;
  }
  for (int k = 1; k < o.ranks; ++k) {
    const int peer = (o.rank + k) % o.ranks;
    receive<T>(o, at<T>(all, o.offsets[static_cast<std::size_t>(peer)]), length(o, peer), peer,
               o.tag);
  }
  const std::byte* from = at<T>(all, o.offsets[static_cast<std::size_t>(o.rank)]);
  for (int k = 1; k < o.ranks; ++k) send<T>(o, from, mine, (o.rank + k) % o.ranks, o.tag);
}

template <class T>
void post_all_to_all(Operation& o) {
  const auto sent = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return layout::Slice{o.sent_offsets[r], o.sent_offsets[r + 1] - o.sent_offsets[r]};
  };
  const auto place = [&](int rank) {
    return at<T>(o.result, o.offsets[static_cast<std::size_t>(rank)]);
  };
  for (int k = 1; k < o.ranks; ++k) {
    const int peer = (o.rank + k) % o.ranks;
    receive<T>(o, place(peer), length(o, peer), peer, o.tag);
  }
  for (int k = 1; k < o.ranks; ++k) {
    const int peer = (o.rank + k) % o.ranks;
    send<T>(o, at<T>(o.whole, sent(peer).offset), sent(peer).extent, peer, o.tag);
  }
  const layout::Slice own = sent(o.rank);
  std::copy_n(at<T>(o.whole, own.offset), own.extent * static_cast<std::int64_t>(sizeof(T)),
              place(o.rank));
}

template <class T>
void post_ordered_sum(Operation& o, T* data, std::int64_t n) {
  constexpr std::int64_t size = sizeof(T);
  o.offsets.clear();
  if (gathers_reduction(n * size, o.ranks)) {
    o.parts.clear();
    for (int r = 0; r <= o.ranks; ++r) o.offsets.push_back(r * n);
    for (int r = 0; r < o.ranks; ++r) o.parts.push_back(o.scratch.data() + r * n * size);
    o.result = reinterpret_cast<std::byte*>(data);
    std::copy_n(o.result, n * size, o.scratch.data() + o.rank * n * size);
    o.then = sum_gathered<T>;
    post_all_gather<T>(o, o.scratch.data());
    return;
  }
  constexpr std::int64_t line = line_bytes / size;
  for (int r = 0; r < o.ranks; ++r)
    o.offsets.push_back(
        std::min(n, layout::split((n + line - 1) / line, o.ranks, r).offset * line));
  o.offsets.push_back(n);
  o.whole = reinterpret_cast<std::byte*>(data);
  o.result = at<T>(reinterpret_cast<std::byte*>(data), o.offsets[static_cast<std::size_t>(o.rank)]);
  begin_segments<T, true>(o);
}

template <class T>
void post_reduce_scatter(Operation& o) {
  begin_segments<T, false>(o);
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
  for (TransportQueue* queue : transport_queues()) queue->progress();
}

#define TRIREME_INSTANTIATE(T)                                                        \
  template void sum_in_order<T>(T*, std::span<const std::byte* const>, std::int64_t); \
  template void post_ordered_sum<T>(Operation&, T*, std::int64_t);                    \
  template void post_reduce_scatter<T>(Operation&);                                   \
  template void post_all_gather<T>(Operation&, std::byte*);                           \
  template void post_all_to_all<T>(Operation&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE
template void post_all_to_all<std::int64_t>(Operation&);

}  // namespace trireme::grid
