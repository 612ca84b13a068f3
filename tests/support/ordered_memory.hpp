#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "support/clocks.hpp"

namespace trireme::testing {

/// Shared memory of an emulated block of warpgroups, used by threads, products and copies of boxes.
/// It is filled with NaNs initially. Each access must be ordered after the accesses on which it
/// depends, by a chain of barriers and of waits for products and copies. Stores of threads must
/// also be published before products or copies access them.
class OrderedMemory {
 public:
  OrderedMemory(std::uint32_t bytes, ThreadOrder& order)
      : order_(&order), bytes_(bytes, 0xff), words_((bytes + 3) / 4) {}

  void read(int thread, std::uint32_t address, void* to, std::uint32_t count) {
    for_words(address, count, [&](Word& word, std::uint32_t at) {
      check_arrived(word, at, "is read");
      check_known(order_->of(thread), word, at, {"thread ", thread, " reads"});
      note(word, thread, order_->now(thread));
    });
    std::memcpy(to, bytes_.data() + address, count);
  }

  void write(int thread, std::uint32_t address, const void* from, std::uint32_t count) {
    for_words(address, count, [&](Word& word, std::uint32_t at) {
      check_replaced(order_->of(thread), word, at, {"thread ", thread, " writes"});
      word.writer = thread;
      word.written = order_->now(thread);
    });
    std::memcpy(bytes_.data() + address, from, count);
  }

  /// Reads for a product of batch `batch` of a warp (an actor); all lanes know `clock`.
  void read_for_product(const Clock& clock, int warp, std::int32_t batch, std::uint32_t address,
                        void* to, std::uint32_t count) {
    for_words(address, count, [&](Word& word, std::uint32_t at) {
      check_arrived(word, at, "is read by a product");
      check_known(clock, word, at, {"a product of warp ", warp - order_->actors.threads, " reads"});
      check_published(clock, word, at, "a product reads");
      note(word, warp, batch);
    });
    std::memcpy(to, bytes_.data() + address, count);
  }

  void begin_copy(int thread, std::uint32_t address, std::uint32_t count) {
    for_words(address, count, [&](Word& word, std::uint32_t at) {
      check_replaced(order_->of(thread), word, at, {"a copy of thread ", thread, " writes"});
      check_published(order_->of(thread), word, at, "a copy replaces");
      word.arriving = true;
    });
  }
  /// Ends a copy, as part of event `event` of a phase barrier (an actor).
  void end_copy(int phases, std::int32_t event, std::uint32_t address, const void* from,
                std::uint32_t count) {
    for_words(address, count, [&](Word& word, std::uint32_t) {
      word.arriving = false;
      word.writer = phases;
      word.written = event;
    });
    std::memcpy(bytes_.data() + address, from, count);
  }

  /// Reserves the words for a phase barrier.
  void reserve(std::uint32_t address, std::uint32_t count) {
    for_words(address, count, [](Word& word, std::uint32_t) { word.reserved = true; });
  }

 private:
  struct Event {
    int actor;
    std::int32_t number;
  };
  struct Who {
    const char* before;
    int id;
    const char* after;
    std::string text() const { return trireme::text(before, id, after); }
  };
  struct Word {
    int writer = -1;
    std::int32_t written = 0;
    bool arriving = false, reserved = false;
    std::vector<Event> readers;  // since the last write
  };

  template <class Use>
  void for_words(std::uint32_t address, std::uint32_t count, const Use& use) {
    check(address % 4 == 0 && address + count <= bytes_.size(), "shared address ", address, " of ",
          bytes_.size());
    for (std::uint32_t w = address / 4; w < (address + count) / 4; ++w) {
      check(!words_[w].reserved, "shared address ", 4 * w, " is part of a barrier");
      use(words_[w], 4 * w);
    }
  }

  static void note(Word& word, int actor, std::int32_t number) {
    for (Event& e : word.readers)
      if (e.actor == actor) {
        e.number = number;
        return;
      }
    word.readers.push_back({actor, number});
  }

  static void check_arrived(const Word& word, std::uint32_t at, const char* what) {
    check(!word.arriving, "shared address ", at, " ", what, " while a copy to it is under way");
  }
  void check_known(const Clock& clock, const Word& word, std::uint32_t at, const Who& who) const {
    if (word.writer < 0 || clock[word.writer] >= word.written) return;
    if (order_->actors.is_thread(word.writer))
      check(false, who.text(), " shared address ", at, " that thread ", word.writer,
            " wrote without a barrier between them");
    check(false, who.text(), " shared address ", at, " before it waited for the copy to it");
  }
  void check_replaced(const Clock& clock, Word& word, std::uint32_t at, const Who& who) {
    check_arrived(word, at, "is written");
    check_known(clock, word, at, who);
    for (const Event& e : word.readers) {
      if (clock[e.actor] >= e.number) continue;
      if (order_->actors.is_thread(e.actor))
        check(false, who.text(), " shared address ", at, " that thread ", e.actor,
              " read without a barrier between");
      check(false, who.text(), " shared address ", at, " that a product of warp ",
            e.actor - order_->actors.threads, " reads, without having waited for it");
    }
    word.readers.clear();
  }
  void check_published(const Clock& clock, const Word& word, std::uint32_t at,
                       const char* what) const {
    check(word.writer < 0 || !order_->actors.is_thread(word.writer) ||
              order_->knows_publication(clock, word.writer, word.written),
          what, " shared address ", at, " that thread ", word.writer,
          " wrote and did not publish to products");
  }

  ThreadOrder* order_;
  std::vector<unsigned char> bytes_;
  std::vector<Word> words_;
};

}  // namespace trireme::testing
