// Hashes of arrays and messages, each in an element of a small device array.
#include <trireme/train/hash_list.hpp>

#include <trireme/kernels/hash.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/tensor/copy.hpp>

#include <algorithm>
#include <sstream>
#include <utility>

namespace trireme::train {

std::uint64_t combined(std::span<const HashEntry> entries) {
  std::uint64_t all = 0;
  for (const HashEntry& entry : entries) {
    all = (all ^ entry.hash) * 0x9e3779b97f4a7c15ULL;
    all ^= all >> 29;
  }
  return all;
}

std::size_t first_difference(std::span<const HashEntry> a, std::span<const HashEntry> b) {
  const auto same = [](const HashEntry& x, const HashEntry& y) { return x.hash == y.hash; };
  return static_cast<std::size_t>(std::ranges::mismatch(a, b, same).in1 - a.begin());
}

std::string to_words(std::span<const HashEntry> entries) {
  std::string words;
  for (const HashEntry& entry : entries) words += text(entry.hash, ' ');
  return words;
}

std::vector<HashEntry> from_words(const std::string& words) {
  std::vector<HashEntry> entries;
  std::istringstream in(words);
  for (std::uint64_t hash = 0; in >> hash;) entries.push_back({hash, false, {}});
  return entries;
}

HashList::HashList(const Exec& exec)
    : exec_(exec),
      memory_("audits", plan::audit_bytes),
      hashes_(memory_.take<std::uint64_t>(plan::audit_bytes / 8)) {
  flush();
}

void HashList::add(const Message& message, bool received) {
  add(HashEntry{0, received, text(message.verb, " on ", message.communicator)}, message.data,
      message.elements, message.size);
}

void HashList::add(HashEntry entry, const void* data, std::int64_t elements, int size) {
  if (entries_.size() - known_ == hashes_.extent(0)) flush();
  kernels::add_hash_of_bits(exec_,
                            View1<std::uint64_t>(hashes_.data() + (entries_.size() - known_), 1),
                            data, elements, size);
  entries_.push_back(std::move(entry));
}

/// Moves the hashes from device memory to the host.
void HashList::flush() {
  const std::size_t count = entries_.size() - known_;
  std::vector<std::uint64_t> found(count);
  if (count > 0)
    copy_to_host<std::uint64_t>(exec_, found, View1<std::uint64_t>(hashes_.data(), count),
                                "train/audit reads hashes");
  for (const std::uint64_t hash : found) entries_[known_++].hash = hash;
  Kokkos::deep_copy(exec_, hashes_, std::uint64_t{0});
}

std::vector<HashEntry> HashList::take() {
  flush();
  known_ = 0;
  return std::exchange(entries_, {});
}

}  // namespace trireme::train
