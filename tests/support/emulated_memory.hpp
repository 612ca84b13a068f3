#pragma once

#include <trireme/base/check.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

namespace trireme::testing {

/// Shared memory of an emulated block. It is filled with NaNs initially, and every access is
/// checked. It is an error if two threads access a word, at least one of them to write, without a
/// barrier in between, or if a thread accesses a word before its asynchronous copy has arrived.
class EmulatedMemory {
 public:
  explicit EmulatedMemory(std::uint32_t bytes) : bytes_(bytes, 0xff), words_((bytes + 3) / 4) {}

  /// All threads have met: their earlier actions precede their later actions.
  void next_epoch() { ++epoch_; }

  void write(int thread, std::uint32_t address, const void* from, std::uint32_t count) {
    for (std::uint32_t w = address / 4; w < (address + count) / 4; ++w) {
      Word& word = at(w);
      check(!word.pending, "thread ", thread, " writes shared address ", 4 * w,
            " to which a copy is under way");
      order_write(word, thread, w);
    }
    std::memcpy(bytes_.data() + address, from, count);
  }

  void read(int thread, std::uint32_t address, void* to, std::uint32_t count) {
    for (std::uint32_t w = address / 4; w < (address + count) / 4; ++w) {
      Word& word = at(w);
      check(!word.pending, "thread ", thread, " reads shared address ", 4 * w,
            " before it waited for the copy to it");
      check(word.writer == thread || word.written != epoch_, "thread ", thread,
            " reads shared address ", 4 * w, " that thread ", word.writer,
            " wrote without a barrier between them");
      word.reader = word.read == epoch_ && word.reader != thread ? several : thread;
      word.read = epoch_;
    }
    std::memcpy(to, bytes_.data() + address, count);
  }

  void begin_copy(int thread, std::uint32_t address, std::uint32_t count) {
    check(address % count == 0, "a copy of ", count, " bytes to shared address ", address);
    for (std::uint32_t w = address / 4; w < (address + count) / 4; ++w) {
      order_write(at(w), thread, w);
      at(w).pending = true;
    }
  }
  void end_copy(int thread, std::uint32_t address, const void* from, std::uint32_t count) {
    for (std::uint32_t w = address / 4; w < (address + count) / 4; ++w) at(w).pending = false;
    write(thread, address, from, count);
  }

 private:
  static constexpr int several = -2;
  struct Word {
    int writer = -1, reader = -1;
    std::int64_t written = -1, read = -1;  // epochs
    bool pending = false;
  };

  Word& at(std::uint32_t word) {
    check(word < words_.size(), "shared address ", 4 * word, " of ", bytes_.size());
    return words_[word];
  }
  void order_write(Word& word, int thread, std::uint32_t w) {
    check(word.read != epoch_ || word.reader == thread, "thread ", thread,
          " writes shared address ", 4 * w, " that another one read without a barrier between");
    check(word.written != epoch_ || word.writer == thread, "thread ", thread,
          " writes shared address ", 4 * w, " that thread ", word.writer,
          " wrote without a barrier between them");
    word.writer = thread;
    word.written = epoch_;
  }

  std::vector<unsigned char> bytes_;
  std::vector<Word> words_;
  std::int64_t epoch_ = 0;
};

/// Additional cycles for sixteen-byte rows at the addresses of eight lanes: rows in the same four
/// of the 32 banks conflict.
template <class Addresses>
int row_conflicts(const Addresses& addresses, int first) {
  int most = 0;
  for (std::uint32_t group = 0; group < 8; ++group) {
    int here = 0;
    for (int i = 0; i < 8; ++i)
      if (addresses(first + i) / 16 % 8 == group) ++here;
    most = here > most ? here : most;
  }
  return most - 1;
}

/// Additional cycles for words of 32 lanes; lanes with the same word share it.
template <class Addresses>
int word_conflicts(const Addresses& addresses) {
  int most = 0;
  for (std::uint32_t bank = 0; bank < 32; ++bank) {
    std::vector<std::uint32_t> words;
    for (int i = 0; i < 32; ++i) {
      const std::uint32_t word = addresses(i) / 4;
      bool known = false;
      for (const std::uint32_t w : words) known = known || w == word;
      if (word % 32 == bank && !known) words.push_back(word);
    }
    most = static_cast<int>(words.size()) > most ? static_cast<int>(words.size()) : most;
  }
  return most - 1;
}

}  // namespace trireme::testing
