#include <trireme/base/check.hpp>
#include <trireme/data/tokenizer_json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

using namespace trireme;

namespace {

constexpr std::string_view sample =
    "The fox, 12 caf\xC3\xA9s <unk> </s> \xE4\xB8\x80\xFF o\xCC\x88\r\n\n x";

}  // namespace

/// The input is a tokenizer.json. Anything but an Error, or a tokenizer whose ids of a text are its
/// own and decode, is a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const std::string json(reinterpret_cast<const char*>(input), size);
  try {
    const auto tokenizer = data::parse_tokenizer(json, "fuzz", "");
    const auto encoder = tokenizer->encoder({true});
    std::vector<std::int32_t> ids;
    for (const char byte : sample) encoder->feed(std::string_view(&byte, 1), ids);
    encoder->finish(ids);
    std::string decoded;
    tokenizer->decode(ids, decoded);
  } catch (const UsageError&) {
  }
  return 0;
}
