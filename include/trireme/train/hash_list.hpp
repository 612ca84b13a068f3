#pragma once

#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// The hash of one array or message of a rank.
struct HashEntry {
  std::uint64_t hash = 0;
  bool received = false;  ///< received from other ranks; otherwise this rank's result
  std::string name;       ///< "all_reduce on tensor", "layers.0.attention.query"
};

/// Hash of all hashes of a list, in order.
std::uint64_t combined(std::span<const HashEntry> entries);
/// Index of the first entry whose hashes differ; the length of the shorter list if there is none.
std::size_t first_difference(std::span<const HashEntry> a, std::span<const HashEntry> b);
/// Converts a list's hashes to text and back, without names and `received`.
std::string to_words(std::span<const HashEntry> entries);
std::vector<HashEntry> from_words(const std::string& words);

/// Hashes of arrays and messages in program order, computed where the kernels run. add() queues a
/// kernel, and waits only if the device memory for hashes is full.
class HashList final : public grid::Witness {
 public:
  explicit HashList(const Exec& exec);

  void gives(const Message& message) override { add(message, false); }
  void receives(const Message& message) override { add(message, true); }
  template <class T>
  void add(const std::string& name, View1<T> x) {
    add(HashEntry{0, false, name}, x.data(), extent(x, 0), sizeof(T));
  }
  Bytes bytes() const { return memory_.capacity(); }
  /// Waits, and returns the entries added since the previous call.
  std::vector<HashEntry> take();

 private:
  void add(const Message& message, bool received);
  void add(HashEntry entry, const void* data, std::int64_t elements, int size);
  void flush();

  Exec exec_;
  Arena memory_;
  View1<std::uint64_t> hashes_;  ///< hashes of the entries from known_ on
  std::vector<HashEntry> entries_;
  std::size_t known_ = 0;  ///< number of entries whose hash is in host memory
};

}  // namespace trireme::train
