#include <trireme/base/check.hpp>
#include <trireme/data/bpe_model.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>

using namespace trireme;

/// The input is a tokenizer.json. Anything but an Error, or a model that is written and read back
/// as the same text, is a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const std::string json(reinterpret_cast<const char*>(input), size);
  try {
    const std::string written = data::tokenizer_json(data::parse_tokenizer_json(json, "fuzz"));
    if (data::tokenizer_json(data::parse_tokenizer_json(written, "written")) != written)
      std::abort();
  } catch (const Error&) {
  }
  return 0;
}
