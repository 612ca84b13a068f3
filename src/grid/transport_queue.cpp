// Verbs on a transport: reductions are transfers and kernels that combine in rank order.
#include <trireme/grid/transport_queue.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/reduction.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/layout/split.hpp>
#include <trireme/tensor/fence.hpp>

#include <algorithm>
#include <utility>

namespace trireme::grid {
namespace {

std::vector<TransportQueue*>& queues() {
  static std::vector<TransportQueue*> all;
  return all;
}

template <Reduction reduction, class S>
TRIREME_FUNCTION S combined(S a, S b) {
  if constexpr (reduction == Reduction::sum) return a + b;
  if constexpr (reduction == Reduction::maximum) return b > a ? b : a;
  if constexpr (reduction == Reduction::minimum) return b < a ? b : a;
}

template <class T>
struct alignas(16) Pack {
  static constexpr int width = 16 / sizeof(T);
  T values[width];
};

/// Combines element i of all ranks in rank order, in float for two-byte types.
template <class T, Reduction reduction>
struct CombineParts {
  using S = std::conditional_t<std::is_same_v<T, std::int64_t>, std::int64_t, Accumulate<T>>;
  const T* own;
  const T* others;
  T* out;
  std::int64_t n;
  int rank;
  int ranks;

  TRIREME_FUNCTION const T* part(int r) const {
    return r == rank ? own : others + (r < rank ? r : r - 1) * n;
  }
  TRIREME_FUNCTION void operator()(std::int64_t i) const {
    S sum = static_cast<S>(part(0)[i]);
    for (int r = 1; r < ranks; ++r) sum = combined<reduction>(sum, static_cast<S>(part(r)[i]));
    out[i] = static_cast<T>(sum);
  }
};

/// CombineParts with 16-byte loads and stores.
template <class T, Reduction reduction>
struct CombinePacks {
  using One = CombineParts<T, reduction>;
  using S = typename One::S;
  One parts;

  TRIREME_FUNCTION void operator()(std::int64_t p) const {
    const auto load = [&](int r) { return reinterpret_cast<const Pack<T>*>(parts.part(r))[p]; };
    S sum[Pack<T>::width];
    Pack<T> pack = load(0);
    for (int k = 0; k < Pack<T>::width; ++k) sum[k] = static_cast<S>(pack.values[k]);
    for (int r = 1; r < parts.ranks; ++r) {
      pack = load(r);
      for (int k = 0; k < Pack<T>::width; ++k)
        sum[k] = combined<reduction>(sum[k], static_cast<S>(pack.values[k]));
    }
    for (int k = 0; k < Pack<T>::width; ++k) pack.values[k] = static_cast<T>(sum[k]);
    reinterpret_cast<Pack<T>*>(parts.out)[p] = pack;
  }
};

bool aligned16(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

template <class T, Reduction reduction>
void combine(const Summands& s, const Exec& exec) {
  const CombineParts<T, reduction> parts{reinterpret_cast<const T*>(s.own),
                                         reinterpret_cast<const T*>(s.others),
                                         reinterpret_cast<T*>(s.out),
                                         s.n,
                                         s.rank,
                                         s.ranks};
  if (s.n == 0) return;
  if (s.n % Pack<T>::width == 0 && aligned16(s.own) && aligned16(s.others) && aligned16(s.out))
    Kokkos::parallel_for("grid/combine_packs",
                         Kokkos::RangePolicy<Exec>(exec, 0, s.n / Pack<T>::width),
                         CombinePacks<T, reduction>{parts});
  else
    Kokkos::parallel_for("grid/combine_parts", Kokkos::RangePolicy<Exec>(exec, 0, s.n), parts);
}

using Launch = void (*)(const Summands&, const Exec&);

template <class T>
Launch combination(Reduction reduction, const char* verb) {
  if constexpr (!is_narrow<T>) {
    if (reduction == Reduction::maximum) return combine<T, Reduction::maximum>;
    if (reduction == Reduction::minimum) return combine<T, Reduction::minimum>;
  }
  check(reduction == Reduction::sum, verb, ": bf16 and fp16 support sum, not min or max");
  return combine<T, Reduction::sum>;
}

}  // namespace

std::span<TransportQueue* const> transport_queues() {
  return queues();
}

TransportQueue::TransportQueue(std::unique_ptr<Transport> transport, std::string name, int rank,
                               int ranks)
    : transport_(std::move(transport)), name_(std::move(name)), rank_(rank), ranks_(ranks) {
  queues().push_back(this);
}

TransportQueue::~TransportQueue() {
  std::erase(queues(), this);
}

/// Recycles the first entries, as far as the transport has passed them and no request owns them.
void TransportQueue::retire() {
  while (!under_way_.empty()) {
    Queued* first = under_way_.front();
    if (first->held || !first->ended || !transport_->passed(first->place)) return;
    under_way_.pop_front();
    idle_.push_back(first);
  }
}

Queued& TransportQueue::take(const char* verb, std::int64_t number, int peer) {
  retire();
  if (idle_.empty()) idle_.push_back(all_.emplace_back(std::make_unique<Queued>()).get());
  Queued& queued = *idle_.back();
  idle_.pop_back();
  static std::int64_t turns = 0;
  queued.turn = ++turns;
  queued.verb = verb;
  queued.number = number;
  queued.peer = peer;
  queued.held = true;
  queued.ended = false;
  under_way_.push_back(&queued);
  return queued;
}

void TransportQueue::end(Queued& queued, const Exec& exec) {
  queued.exec = exec;
  queued.ended = true;
  transport_->record(queued.place);
}

bool TransportQueue::continue_behind(Queued& queued) {
  check(queued.ended, queued.verb, " on ", name_, " was waited for before its group ended");
  return transport_->continue_behind(queued.exec, queued.place);
}

const Queued* TransportQueue::oldest() {
  retire();
  for (const Queued* queued : under_way_)
    if (queued->ended && !transport_->passed(queued->place)) return queued;
  return nullptr;
}

void TransportQueue::reserve_scratch(Bytes bytes) {
  if (scratch_bytes() >= bytes) return;
  // Waits, because outstanding entries use the smaller buffer.
  Transport::Place all;
  transport_->record(all);
  if (!transport_->passed(all))
    wait_until([&] { return transport_->passed(all); }, "grid/ makes room for larger sums");
  scratch_ = {};
  scratch_ = Kokkos::View<std::byte*, Memory>(
      Kokkos::view_alloc(Kokkos::WithoutInitializing, "grid/reduction"),
      static_cast<std::size_t>(bytes));
}

template <class T>
void TransportQueue::all_reduce(const Exec& exec, Queued& queued, T* data, std::int64_t n,
                                Reduction reduction) {
  constexpr auto size = static_cast<Bytes>(sizeof(T));
  const Launch launch = combination<T>(reduction, queued.verb);
  transport_->begin_behind(exec);
  // Maxima and minima are always gathered.
  if (gathers_reduction(n * size, ranks_) || reduction != Reduction::sum) {
    reserve_scratch(n * size * (ranks_ - 1));
    group_.clear();
    std::byte* slot = scratch_.data();
    for (int r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      group_.push_back({slot, n * size, r, false});
      slot += n * size;
    }
    for (int k = 1; k < ranks_; ++k)
      group_.push_back({raw(data), n * size, (rank_ + k) % ranks_, true});
    transport_->exchange(group_);
    transport_->run(launch, {raw(data), scratch_.data(), raw(data), n, rank_, ranks_});
  } else {
    constexpr std::int64_t line = reduction_line_bytes / size;
    offsets_.clear();
    for (int r = 0; r < ranks_; ++r)
      offsets_.push_back(
          std::min(n, layout::split((n + line - 1) / line, ranks_, r).offset * line));
    offsets_.push_back(n);
    begin_segments<T>(data + offsets_[static_cast<std::size_t>(rank_)], data, offsets_, true);
  }
  end(queued, exec);
}

template <class T>
void TransportQueue::reduce_scatter(const Exec& exec, Queued& queued, T* mine, const T* all,
                                    std::span<const std::int64_t> offsets) {
  transport_->begin_behind(exec);
  begin_segments<T>(mine, all, offsets, false);
  end(queued, exec);
}

/// Segment by segment, every rank receives its part of the inputs of all ranks, and sums it. If
/// `shares`, the sums are sent to all ranks in the same group as the inputs of the next segment.
template <class T>
void TransportQueue::begin_segments(T* out, const T* all, std::span<const std::int64_t> offsets,
                                    bool shares) {
  constexpr auto size = static_cast<Bytes>(sizeof(T));
  const std::int64_t most = device_reduction_segment_bytes(ranks_) / size;
  std::int64_t longest = 0;
  const auto part = [&](int r, std::int64_t segment) {
    const auto i = static_cast<std::size_t>(r);
    const std::int64_t length = offsets[i + 1] - offsets[i];
    const std::int64_t begin = std::min(segment * most, length);
    return layout::Slice{offsets[i] + begin, std::min(most, length - begin)};
  };
  for (int r = 0; r < ranks_; ++r)
    longest = std::max(
        longest, offsets[static_cast<std::size_t>(r) + 1] - offsets[static_cast<std::size_t>(r)]);
  reserve_scratch(std::min(longest, most) * size * (ranks_ - 1));
  const auto add = [&](const std::byte* data, std::int64_t n, int peer, bool sends) {
    if (n > 0) group_.push_back({const_cast<std::byte*>(data), n * size, peer, sends});
  };
  const std::int64_t segments = (longest + most - 1) / most;
  for (std::int64_t s = 0; s < segments + (shares ? 1 : 0); ++s) {
    group_.clear();
    const layout::Slice mine = part(rank_, s);
    if (s < segments) {
      const std::byte* slot = scratch_.data();
      for (int r = 0; r < ranks_; ++r) {
        if (r == rank_) continue;
        add(slot, mine.extent, r, false);
        slot += mine.extent * size;
      }
    }
    for (int k = 1; k < ranks_; ++k) {
      const int peer = (rank_ + k) % ranks_;
      if (s < segments) {
        const layout::Slice theirs = part(peer, s);
        add(raw(all + theirs.offset), theirs.extent, peer, true);
      }
      if (shares && s > 0) {
        const layout::Slice theirs = part(peer, s - 1);
        const layout::Slice summed = part(rank_, s - 1);
        add(raw(all + theirs.offset), theirs.extent, peer, false);
        add(raw(all + summed.offset), summed.extent, peer, true);
      }
    }
    if (!group_.empty()) transport_->exchange(group_);
    if (s < segments && mine.extent > 0) {
      const std::int64_t first = mine.offset - offsets[static_cast<std::size_t>(rank_)];
      transport_->run(combine<T, Reduction::sum>, {raw(all + mine.offset), scratch_.data(),
                                                   raw(out + first), mine.extent, rank_, ranks_});
    }
  }
}

void TransportQueue::all_gather(const Exec& exec, Queued& queued, std::byte* all,
                                std::span<const std::int64_t> offsets, Bytes size) {
  byte_offsets_.clear();
  for (const std::int64_t offset : offsets) byte_offsets_.push_back(offset * size);
  transport_->begin_behind(exec);
  transport_->all_gather(all, byte_offsets_);
  end(queued, exec);
}

void TransportQueue::all_to_all(const Exec& exec, Queued& queued, std::byte* all,
                                std::span<const std::int64_t> offsets, std::byte* mine,
                                std::span<const std::int64_t> sent_offsets, Bytes size) {
  group_.clear();
  const auto add = [&](std::byte* data, std::span<const std::int64_t> parts, int peer, bool sends) {
    const auto r = static_cast<std::size_t>(peer);
    const Bytes bytes = (parts[r + 1] - parts[r]) * size;
    if (bytes > 0) group_.push_back({data + parts[r] * size, bytes, peer, sends});
  };
  for (int k = 1; k < ranks_; ++k) add(all, offsets, (rank_ + k) % ranks_, false);
  for (int k = 1; k < ranks_; ++k) add(mine, sent_offsets, (rank_ + k) % ranks_, true);
  transport_->begin_behind(exec);
  if (!group_.empty()) transport_->exchange(group_);
  end(queued, exec);
}

void TransportQueue::broadcast(const Exec& exec, Queued& queued, std::byte* data, Bytes bytes,
                               int root) {
  transport_->begin_behind(exec);
  transport_->broadcast(data, bytes, root);
  end(queued, exec);
}

void TransportQueue::transfer(const Exec& exec, Queued& queued,
                              const Transport::Transfer& transfer) {
  if (!grouping_) {
    transport_->begin_behind(exec);
    if (transfer.bytes > 0) transport_->exchange({&transfer, 1});
    return end(queued, exec);
  }
  if (transfer.bytes > 0) group_.push_back(transfer);
  members_.push_back(&queued);
}

void TransportQueue::begin_group() {
  grouping_ = true;
  group_.clear();
  members_.clear();
}

void TransportQueue::end_group(const Exec& exec) {
  grouping_ = false;
  if (members_.empty()) return;
  transport_->begin_behind(exec);
  if (!group_.empty()) transport_->exchange(group_);
  for (Queued* queued : members_) end(*queued, exec);
  members_.clear();
}

#define TRIREME_INSTANTIATE_ALL_REDUCE(T) \
  template void TransportQueue::all_reduce<T>(const Exec&, Queued&, T*, std::int64_t, Reduction);
TRIREME_INSTANTIATE_ALL_REDUCE(float)
TRIREME_INSTANTIATE_ALL_REDUCE(double)
TRIREME_INSTANTIATE_ALL_REDUCE(Bf16)
TRIREME_INSTANTIATE_ALL_REDUCE(Fp16)
TRIREME_INSTANTIATE_ALL_REDUCE(std::int64_t)
#undef TRIREME_INSTANTIATE_ALL_REDUCE

#define TRIREME_INSTANTIATE(T)                                                        \
  template void TransportQueue::reduce_scatter<T>(const Exec&, Queued&, T*, const T*, \
                                                  std::span<const std::int64_t>);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::grid
