#include <trireme/base/check.hpp>
#include <trireme/hugging_face/safetensors.hpp>

#include "memory_file.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace trireme;

/// The input is the header; its length is put before it and 64 bytes of data after it. Anything but
/// an Error, or tensors that cover the data once and can be read, is a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  static const fuzz::MemoryFile file;
  constexpr std::size_t data_bytes = 64;
  std::vector<char> bytes(8 + size + data_bytes, 'd');
  const std::uint64_t length = size;
  std::memcpy(bytes.data(), &length, sizeof length);
  if (size > 0) std::memcpy(bytes.data() + 8, input, size);
  file.replace(bytes.data(), bytes.size());
  try {
    const hugging_face::SafetensorsFile tensors(file.path());
    std::int64_t sum = 0;
    for (const auto& tensor : tensors.tensors()) {
      if (tensors.find(tensor.name) != &tensor) std::abort();
      std::string part(static_cast<std::size_t>(tensor.bytes), '\0');
      tensors.read(tensor, 0, tensor.bytes, part.data());
      if (part != std::string(part.size(), 'd')) std::abort();
      sum += tensor.bytes;
    }
    if (sum != data_bytes) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
