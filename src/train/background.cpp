#include <trireme/train/background.hpp>

#include <trireme/architecture/saved.hpp>
#include <trireme/base/check.hpp>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

namespace trireme::train {
namespace {

/// Blocks all signals of this thread during the object's lifetime. Threads started meanwhile keep
/// all signals blocked: only the main thread has a stack for signal handlers.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &former_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t former_{};
};

StagingBuffer touched(Bytes bytes) {
  if (bytes == 0) return {};
  return StagingBuffer("train/checkpoint_copy",
                       static_cast<std::size_t>(bytes + architecture::saved_alignment));
}

}  // namespace

std::future<std::string> start_part(bool background, std::function<std::string()> work) {
  const SignalsBlocked blocked;
  return std::async(background ? std::launch::async : std::launch::deferred, std::move(work));
}

CopyMemory::CopyMemory(Bytes bytes) : memory_(touched(bytes)), bytes_(bytes) {}

std::span<std::byte> CopyMemory::content() const {
  if (bytes_ == 0) return {};
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  return {
      memory_.data() + (architecture::saved_alignment - address % architecture::saved_alignment),
      static_cast<std::size_t>(bytes_)};
}

std::vector<checkpoint::SliceView> CopyMemory::place(
    std::vector<checkpoint::SliceView> slices) const {
  std::byte* const begin = content().data();
  Bytes at = 0;
  for (checkpoint::SliceView& slice : slices) {
    check(at + slice.bytes() <= bytes_, "a rank's share of a checkpoint has more than the planned ",
          bytes_, " bytes");
    slice.data = begin + at;
    slice.copy = nullptr;
    at += architecture::saved_bytes(slice.bytes());
  }
  return slices;
}

std::vector<checkpoint::SliceView> CopyMemory::copy(
    const std::vector<checkpoint::SliceView>& slices) const {
  std::vector<checkpoint::SliceView> copies = place(slices);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    auto* const to = const_cast<void*>(copies[i].data);
    if (slices[i].data != nullptr)
      std::memcpy(to, slices[i].data, static_cast<std::size_t>(slices[i].bytes()));
    else
      slices[i].copy(0, slices[i].bytes(), to);
  }
  return copies;
}

Bytes copy_bytes(std::span<const checkpoint::SliceView> slices) {
  Bytes bytes = 0;
  for (const checkpoint::SliceView& slice : slices)
    bytes += architecture::saved_bytes(slice.bytes());
  return bytes;
}

}  // namespace trireme::train
