#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme::grid {

/// Receives the values that this rank passes to a communicator's verbs on views and the values that
/// the verbs return, in program order: an input when its verb starts, a result when the wait for it
/// has ended. Kernels that it launches on the verb's Exec see these values.
class Witness {
 public:
  struct Message {
    const char* verb = "";
    std::string_view communicator;
    const std::byte* data = nullptr;
    std::int64_t elements = 0;
    int size = 0;  ///< bytes of an element
  };
  virtual ~Witness() = default;
  virtual void gives(const Message& message) = 0;
  virtual void receives(const Message& message) = 0;
};

}  // namespace trireme::grid
