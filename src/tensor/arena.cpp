#include <trireme/tensor/arena.hpp>

#include <trireme/base/check.hpp>

#include <atomic>
#include <cstdint>
#include <type_traits>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace trireme {
namespace {

std::atomic<std::int64_t> allocations{0};

/// Requests pages of 2 MiB for untouched memory, for fewer page faults and TLB misses.
[[maybe_unused]] void want_large_pages([[maybe_unused]] std::byte* begin,
                                       [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t page = std::uintptr_t{2} << 20;
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + bytes) / page * page;
  if (end > first)
    ::madvise(reinterpret_cast<void*>(first), end - first,
              MADV_HUGEPAGE);  // advice, which the system may reject
#endif
}

/// Allocates zeroed memory. On hosts, the threads that will use the memory touch it first.
template <class View>
View allocate(const std::string& label, std::size_t bytes) {
  using Space = typename View::memory_space;
  if constexpr (std::is_same_v<Space, Kokkos::HostSpace>) {
    const View view(Kokkos::view_alloc(Kokkos::WithoutInitializing, label), bytes);
    want_large_pages(view.data(), bytes);
    using Words = Kokkos::View<std::uint64_t*, Space, Unmanaged>;
    static_assert(array_alignment % sizeof(std::uint64_t) == 0);
    Kokkos::deep_copy(Words(reinterpret_cast<std::uint64_t*>(view.data()), bytes / 8), 0);
    return view;
  } else {
    return View(label, bytes);
  }
}

}  // namespace

Arena::Arena(const std::string& label, std::int64_t bytes, ArenaMemory where)
    : label_(label), capacity_(bytes) {
  check(bytes >= 0, "arena ", label, ": size = ", bytes, " bytes, expected 0 or more");
  // Some back ends of Kokkos align memory to less than a cache line, so the arena allocates an
  // extra line and starts at a multiple of a line.
  const auto padded = static_cast<std::size_t>(aligned(bytes) + array_alignment);
  try {
    if (where == ArenaMemory::device)
      memory_ = allocate<Kokkos::View<std::byte*, Memory>>(label, padded);
    else
      host_memory_ = allocate<StagingBuffer>(label, padded);
  } catch (const std::exception& e) {
    throw Error(
        text("cannot allocate ", human_bytes(bytes), " for ", label,
             "; use a smaller micro-batch or more ranks (trireme check shows the bytes per rank): ",
             plain_message(e)));
  }
  ++allocations;
  std::byte* const begin = where == ArenaMemory::device ? memory_.data() : host_memory_.data();
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  data_ =
      begin + (static_cast<std::uintptr_t>(aligned(static_cast<std::int64_t>(address))) - address);
}

std::byte* Arena::cut_bytes(std::int64_t bytes) {
  const std::int64_t start = used_;
  used_ += aligned(bytes);
  if (data_ == nullptr) return nullptr;
  check(used_ <= aligned(capacity_), "arena ", label_, " has ", capacity_, " bytes, but ", used_,
        " are needed");
  return data_ + start;
}

void Arena::release_to(std::int64_t mark) {
  check(mark >= 0 && mark <= used_, "arena ", label_, ": mark ", mark, " is not within the ", used_,
        " bytes used");
  used_ = mark;
}

std::int64_t arena_allocation_count() {
  return allocations.load();
}

}  // namespace trireme
