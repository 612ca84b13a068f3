#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/kernels/warpgroup_tiles.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "support/group_state.hpp"

namespace trireme::testing {

/// A Block of warpgroups as used by kernels (kernels/warpgroup_tiles.hpp).
class EmulatedGroupBlock {
 public:
  EmulatedGroupBlock(emulator::GroupScheduler& scheduler, emulator::GroupBlockState& state,
                     int thread)
      : scheduler_(&scheduler), state_(&state), thread_(thread) {}

  int thread() const { return thread_; }
  int index() const { return state_->index; }
  int group() const { return thread_ / kernels::group_threads; }
  std::uint32_t shared() const { return 0; }

  void barrier() { meet(0, scheduler_->launch.threads); }
  void meet(int id, int threads) {
    emulator::Meeting& m = meeting(id, threads);
    m.waiting.push_back(thread_);
    if (m.arrive(thread_, threads, state_->order)) return end(m);
    leave(emulator::State::at_barrier, "barrier of threads", static_cast<std::uint32_t>(id));
  }
  void signal(int id, int threads) {
    emulator::Meeting& m = meeting(id, threads);
    if (m.arrive(thread_, threads, state_->order)) end(m);
  }
  void warp_barrier() {
    WarpRequest r;
    r.operation = WarpOperation::barrier;
    together(r);
  }

  std::uint32_t broadcast(std::uint32_t x) {
    move(WarpOperation::broadcast, &x, 0);
    return x;
  }
  std::uint32_t load(std::uint32_t from) {
    std::uint32_t word;
    state_->memory.read(thread_, from, &word, 4);
    return word;
  }
  void store_alone(std::uint32_t to, std::uint32_t word) {
    state_->memory.write(thread_, to, &word, 4);
  }
  unsigned take(unsigned* from) { return (*from)++; }

  bool any(bool x) {
    WarpRequest r;
    r.operation = WarpOperation::vote;
    std::uint32_t word = x ? 1 : 0;
    r.words = &word;
    together(r);
    return word != 0;
  }
  template <class V>
  V shuffle_xor(V x, int lanes) {
    if constexpr (std::is_same_v<V, float>) usable(x);
    auto word = __builtin_bit_cast(std::uint32_t, x);
    WarpRequest r;
    r.operation = WarpOperation::shuffle;
    r.words = &word;
    r.lanes = lanes;
    together(r);
    return __builtin_bit_cast(V, word);
  }
  template <class T>
  std::uint32_t pack(float low, float high) {
    usable(low), usable(high);
    return T(low).bits | static_cast<std::uint32_t>(T(high).bits) << 16;
  }

  void load_matrices(std::uint32_t (&r)[4], std::uint32_t from) {
    move(WarpOperation::load_matrices, r, from);
  }
  void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t from) {
    move(WarpOperation::load_matrices_transposed, r, from);
  }
  void store_matrices(std::uint32_t to, const std::uint32_t (&r)[4]) {
    move(WarpOperation::store_matrices, const_cast<std::uint32_t*>(r), to);
  }
  void store_matrices_transposed(std::uint32_t to, const std::uint32_t (&r)[4]) {
    move(WarpOperation::store_matrices_transposed, const_cast<std::uint32_t*>(r), to);
  }
  void store(std::uint32_t to, std::uint32_t word) { move(WarpOperation::store, &word, to); }
  void load_pair(float (&x)[2], std::uint32_t from) { state_->memory.read(thread_, from, x, 8); }

  void read16(std::uint32_t (&words)[4], const void* from) const {
    check(reinterpret_cast<std::uintptr_t>(from) % 16 == 0, "16 bytes from an odd address");
    std::memcpy(words, from, 16);
  }
  void store16(void* to, const std::uint32_t (&words)[4]) const {
    check(reinterpret_cast<std::uintptr_t>(to) % 16 == 0, "16 bytes to an odd address");
    std::memcpy(to, words, 16);
  }
  void store4(void* to, std::uint32_t word) const { std::memcpy(to, &word, 4); }
  void read4(float (&x)[4], const float* from) const {
    check(reinterpret_cast<std::uintptr_t>(from) % 16 == 0, "16 bytes from an odd address");
    std::memcpy(x, from, 16);
  }
  void write4(float* to, const float (&x)[4]) {
    check(reinterpret_cast<std::uintptr_t>(to) % 16 == 0, "16 bytes to an odd address");
    state_->writes.push_back(
        {to, {x[0], x[1], x[2], x[3]}, thread_, state_->order.now(thread_), false});
  }
  unsigned take_ticket(unsigned* from) {
    if (thread_ == 0) state_->ticket = (*from)++;
    barrier();
    const unsigned ticket = state_->ticket;
    barrier();
    return ticket;
  }
  void await(const unsigned* at, unsigned value) {
    poll([=] { return *at == value; }, "counter of value", value);
  }
  void release(unsigned* at, unsigned value) {
    state_->publish(thread_, false);
    *at = value;
  }

  float exp2(float x) const { return usable(x), std::exp2(x); }
  float log(float x) const { return usable(x), std::log(x); }
  float larger(float x, float y) const { return usable(x), usable(y), std::fmax(x, y); }
  std::uint32_t unknown(std::uint32_t x) const { return x; }

  template <class T, int columns, kernels::Major left, kernels::Major right>
  void multiply(float (&c)[columns / 8][4], std::uint64_t a, std::uint64_t b, bool add) {
    emulator::Product p{kind<T, columns>(right, b, add), c[0], {}};
    p.kind.left = left;
    p.kind.a = a;
    self().registers.issue(p, nullptr);
  }
  template <class T, int columns, kernels::Major right>
  void multiply_left(float (&c)[columns / 8][4], const std::uint32_t (&a)[4], std::uint64_t b,
                     bool add) {
    emulator::Product p{kind<T, columns>(right, b, add), c[0], {a[0], a[1], a[2], a[3]}};
    p.kind.left_in_registers = true;
    self().registers.issue(p, a);
  }
  template <class... Registers>
  void begin_products(Registers&... registers) {
    self().registers.begin();
    (self().registers.cover(&registers, sizeof registers), ...);
  }
  void commit_products() {
    WarpRequest r;
    r.operation = WarpOperation::commit_products;
    together(r);
  }
  template <int batches, class... Registers>
  void wait_products(Registers&... registers) {
    const std::int32_t done = self().registers.wait(batches);
    state_->order.of(thread_).learn(state_->order.actors.warp(thread_), done);
    (self().registers.check_waited(&registers, sizeof registers), ...);
  }

  void settle(float x) const { usable(x); }

  void init_phases(std::uint32_t at, int count) {
    state_->phases.init(at, count, thread_, state_->order);
    state_->memory.reserve(at, 8);
  }
  void publish_phases() { state_->phases.publish(thread_); }
  void arrive(std::uint32_t at, std::uint32_t bytes = 0) {
    phases(at).arrive(thread_, bytes, state_->order);
  }
  void await_phase(std::uint32_t at, std::uint32_t parity) {
    check(parity < 2, "parity ", parity);
    emulator::Phases& p = phases(at);
    poll([&p, parity] { return p.has_ended(parity); }, "phase of the barrier at", at);
    state_->order.of(thread_).learn(p.known);
  }
  void prefetch(const kernels::TensorMap&) const {}
  void copy_box(std::uint32_t to, const kernels::TensorMap& map, int x0, int x1, int x2, int x3,
                std::uint32_t at) {
    check(to % 1024 == 0, "a box to shared address ", to, ", which is no multiple of 1024");
    emulator::BoxCopy copy{{}, {x0, x1, x2, x3}, to, at};
    std::memcpy(&copy.map, map.bytes, sizeof copy.map);
    emulator::check_map(copy.map);
    phases(at);
    state_->memory.begin_copy(thread_, to, copy.bytes());
    state_->copies.push_back(copy);
    if (scheduler_->launch.early_copies) state_->land(state_->copies.size() - 1);
  }
  void store_sums(std::uint32_t to, const float (&x)[4]) {
    check(to % 16 == 0, "16 bytes to shared address ", to);
    for (const float each : x) usable(each);
    state_->memory.write(thread_, to, x, 16);
  }
  /// Reads shared memory for the thread's warp in the same way as products.
  void send_sums(float* to, std::uint32_t from, std::uint32_t bytes, bool add) {
    check(from % 16 == 0 && bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(to) % 16 == 0,
          "sums of ", bytes, " bytes from shared address ", from);
    check(self().registers.batch() == 1, "thread ", thread_, " sends sums, and has products");
    ++self().sent;
    for (std::uint32_t i = 0; i < bytes; i += 16) {
      emulator::GroupWrite write{to + i / 4, {}, thread_, 0, add};
      state_->memory.read_for_product(state_->order.of(thread_), state_->order.actors.warp(thread_),
                                      self().sent, from + i, write.values, 16);
      self().sending.push_back(write);
    }
  }
  void await_read() {
    state_->order.of(thread_).learn(state_->order.actors.warp(thread_), self().sent);
  }
  void await_sent() {
    await_read();
    for (emulator::GroupWrite& write : self().sending) {
      write.event = state_->order.now(thread_);
      state_->writes.push_back(write);
    }
    self().sending.clear();
  }
  void publish_to_products() { state_->order.publish(thread_); }

  template <int n>
  void raise_registers() {
    set_registers(n, true);
  }
  template <int n>
  void lower_registers() {
    set_registers(n, false);
  }

 private:
  static void usable(float x) { emulator::RegistersInFlight::check_usable(x); }
  emulator::GroupThread& self() { return state_->threads[static_cast<std::size_t>(thread_)]; }
  emulator::Phases& phases(std::uint32_t at) {
    return state_->phases.find(at, thread_, state_->order);
  }

  template <class T, int columns>
  static emulator::ProductKind kind(kernels::Major right, std::uint64_t b, bool add) {
    static_assert(columns % 8 == 0 && columns <= 256);
    emulator::ProductKind k;
    k.bf16 = std::is_same_v<T, Bf16>;
    k.columns = columns;
    k.right = right;
    k.b = b;
    k.add = add;
    return k;
  }

  emulator::Meeting& meeting(int id, int threads) {
    check(id >= 0 && id < 16 && threads <= scheduler_->launch.threads, "barrier ", id, " of ",
          threads, " threads");
    return state_->meetings[id];
  }
  void end(emulator::Meeting& m) {
    m.arrived = 0;
    for (const int thread : m.waiting) {
      state_->order.of(thread).learn(m.known);
      state_->threads[static_cast<std::size_t>(thread)].state = emulator::State::ready;
    }
    m.waiting.clear();
  }

  template <class Until>
  void poll(const Until& until, const char* what, std::uint32_t with) {
    if (until()) return;
    self().until = until;
    leave(emulator::State::polling, what, with);
  }

  void set_registers(int n, bool raise) {
    int& mine = state_->registers[static_cast<std::size_t>(thread_ / 32)];
    check(n % 8 == 0 && n >= 24 && n <= 256 && (raise ? n >= mine : n <= mine), "from ", mine,
          " to ", n, " registers");
    warp_barrier();
    mine = n;
    warp_barrier();
  }

  void move(WarpOperation operation, std::uint32_t* words, std::uint32_t address) {
    WarpRequest r;
    r.operation = operation;
    r.words = words;
    r.address = address;
    together(r);
  }

  /// Waits for the other lanes; the last one executes the operation for all.
  void together(const WarpRequest& mine) {
    const auto warp = static_cast<std::size_t>(thread_ / 32);
    WarpRequests& requests = state_->warps[warp];
    if (state_->arrived[warp] == 0)
      for (WarpRequest& r : requests) r.operation = WarpOperation::none;
    for (const WarpRequest& r : requests)
      check(r.operation == WarpOperation::none ||
                (r.operation == mine.operation && r.lanes == mine.lanes),
            "lanes of warp ", warp, " of block ", state_->index, " do different things");
    requests[static_cast<std::size_t>(thread_ % 32)] = mine;
    if (++state_->arrived[warp] < 32)
      return leave(emulator::State::at_warp, "lanes of its warp", 0);
    state_->arrived[warp] = 0;
    ++scheduler_->report.operations;
    if (mine.operation == WarpOperation::commit_products)
      multiply_open();
    else if (mine.operation == WarpOperation::barrier)
      tell_each_other();
    else
      execute(requests, state_->memory, thread_ / 32 * 32, scheduler_->report.bank_conflicts);
    for (std::size_t lane = 0; lane < 32; ++lane)
      state_->threads[32 * warp + lane].state = emulator::State::ready;
  }

  void tell_each_other() {
    const int first = thread_ / 32 * 32;
    Clock all(state_->order.actors.count());
    for (int lane = 0; lane < 32; ++lane) state_->order.tell(first + lane, all);
    for (int lane = 0; lane < 32; ++lane) state_->order.of(first + lane).learn(all);
  }

  /// Products issued by the warp's lanes since the last batch.
  void multiply_open() {
    const int first = thread_ / 32 * 32, warp = thread_ / 32;
    const auto registers = [&](int lane) -> emulator::RegistersInFlight& {
      return state_->threads[static_cast<std::size_t>(first + lane)].registers;
    };
    Clock common = state_->order.of(first);
    for (int lane = 1; lane < 32; ++lane) common.keep_common(state_->order.of(first + lane));
    const std::size_t count = registers(0).open().size();
    for (std::size_t i = 0; i < count; ++i) {
      std::array<const emulator::Product*, 32> lanes;
      for (int lane = 0; lane < 32; ++lane) {
        const auto& open = registers(lane).open();
        check(open.size() == count && open[i].kind == registers(0).open()[i].kind, "lanes of warp ",
              warp, " of block ", state_->index, " issue different products");
        lanes[static_cast<std::size_t>(lane)] = &open[i];
      }
      check_group(warp, lanes[0]->kind);
      const auto read = [&](std::uint32_t address, void* to, std::uint32_t bytes) {
        state_->memory.read_for_product(common, state_->order.actors.warp(first),
                                        registers(0).batch(), address, to, bytes);
      };
      const auto sums = [&](int lane) {
        return registers(lane).values(lanes[static_cast<std::size_t>(lane)]->sums);
      };
      if (lanes[0]->kind.bf16)
        emulator::multiply_rows<Bf16>(read, lanes, warp % 4, sums);
      else
        emulator::multiply_rows<Fp16>(read, lanes, warp % 4, sums);
      if (warp % 4 == 0) ++scheduler_->report.products;
    }
    for (int lane = 0; lane < 32; ++lane) registers(lane).committed();
  }
  /// Checks that the warps of a group issue the same products.
  void check_group(int warp, const emulator::ProductKind& kind) {
    auto& products = state_->products[static_cast<std::size_t>(warp / 4)];
    std::size_t& issued = state_->issued[static_cast<std::size_t>(warp)];
    if (issued == products.size()) products.push_back(kind);
    check(products[issued] == kind, "warp ", warp, " issues another product than its group");
    ++issued;
  }

  void leave(emulator::State state, const char* what, std::uint32_t with) {
    emulator::GroupThread& f = self();
    f.state = state;
    f.doing = what;
    f.with = with;
    const int lane = thread_ % 32;
    for (int i = 1; i < 32; ++i) {  // directly to another lane, if one can run
      const int next = scheduler_->launch.backwards ? (lane + 32 - i) % 32 : (lane + i) % 32;
      emulator::GroupThread& other =
          state_->threads[static_cast<std::size_t>(thread_ - lane + next)];
      if (other.state != emulator::State::ready) continue;
      f.fiber.go_to(other.fiber);
      return;
    }
    f.fiber.go_to(scheduler_->home);
  }

  emulator::GroupScheduler* scheduler_;
  emulator::GroupBlockState* state_;
  int thread_;
};

}  // namespace trireme::testing
