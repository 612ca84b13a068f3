#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define TRIREME_TELL_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRIREME_TELL_SANITIZER 1
#endif
#endif
#if defined(TRIREME_TELL_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#endif

namespace trireme::testing {

/// A thread of control with its own stack, one of which runs at a time, or the context that starts
/// them, which has no separate stack. The address sanitizer is told which stack is in use. Without
/// it, fibers switch by longjmp(), because swapcontext() reads the signal mask from the kernel,
/// which dominates the time.
class Fiber {
 public:
  static constexpr std::size_t stack_bytes = 256 * 1024;
  using Stack = std::unique_ptr<char[]>;

  /// Begins with enter(low, high), the halves of the address of `argument`, and ends in `home`.
  void prepare(Stack stack, void (*enter)(unsigned, unsigned), const void* argument, Fiber& home) {
    stack_ = std::move(stack);
    started_ = false;
    bottom_ = stack_.get();
    bytes_ = stack_bytes;
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = stack_bytes;
    context_.uc_link = &home.context_;
    const auto address = reinterpret_cast<std::uintptr_t>(argument);
    makecontext(&context_, reinterpret_cast<void (*)()>(enter), 2, static_cast<unsigned>(address),
                static_cast<unsigned>(std::uint64_t{address} >> 32));
  }

  /// Switches to `other`, until a fiber switches back to this one.
  void go_to(Fiber& other) {
#if defined(TRIREME_TELL_SANITIZER)
    void* kept = nullptr;
    __sanitizer_start_switch_fiber(&kept, other.bottom_, other.bytes_);
    swapcontext(&context_, &other.context_);
    __sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
#else
    if (_setjmp(place_) == 0) other.go_on();
#endif
  }

  /// Called first and last in a fiber.
  static void begin([[maybe_unused]] Fiber& home) {
#if defined(TRIREME_TELL_SANITIZER)
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (home.bottom_ == nullptr) {  // the first fiber starts from there
      home.bottom_ = bottom;
      home.bytes_ = bytes;
    }
#endif
  }
  static void end(Fiber& home) {
#if defined(TRIREME_TELL_SANITIZER)
    __sanitizer_start_switch_fiber(nullptr, home.bottom_, home.bytes_);
#else
    home.go_on();
#endif
  }

  /// Takes the stack of a fiber that has ended.
  Stack take_stack() {
    return std::move(stack_);
  }

 private:
#if !defined(TRIREME_TELL_SANITIZER)
  [[noreturn]] void go_on() {
    if (bottom_ != nullptr && !started_) {
      started_ = true;
      setcontext(&context_);
    }
    _longjmp(place_, 1);
  }
  jmp_buf place_{};  ///< resume position of a started fiber
#endif

  ucontext_t context_{};
  Stack stack_;
  bool started_ = false;
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace trireme::testing
