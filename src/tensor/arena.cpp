#include <trireme/tensor/arena.hpp>

#include <atomic>

namespace trireme {
namespace {
std::atomic<std::int64_t> allocations{0};
}

Arena::Arena(const std::string& label, std::int64_t bytes, ArenaMemory where)
    : label_(label), capacity_(bytes) {
  check(bytes >= 0, "arena ", label, " of ", bytes, " bytes");
  // Kokkos aligns to less than a cache line on some back ends: allocate one line more and start at
  // a multiple.
  const auto padded = static_cast<std::size_t>(aligned(bytes) + arena_alignment_bytes);
  try {
    if (where == ArenaMemory::device)
      memory_ = Kokkos::View<std::byte*, Memory>(label, padded);
    else
      host_memory_ = StagingBuffer(label, padded);
  } catch (const std::exception& e) {
    throw Error(
        text("cannot allocate ", human_bytes(bytes), " for ", label,
             "; use a smaller micro-batch or more ranks (trireme check shows the bytes per rank): ",
             e.what()));
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
  check(used_ <= aligned(capacity_), "arena ", label_, " of ", capacity_, " bytes is full: ", used_,
        " bytes wanted");
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
