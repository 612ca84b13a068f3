#include <trireme/base/packed_texts.hpp>

#include <trireme/base/check.hpp>

#include <charconv>

namespace trireme {

std::string pack_texts(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& each : texts) packed += text(each.size(), ':', each);
  return packed;
}

std::vector<std::string> unpack_texts(std::string_view packed) {
  std::vector<std::string> texts;
  while (!packed.empty()) {
    std::size_t size = 0;
    const char* const end = packed.data() + packed.size();
    const auto [at, error] = std::from_chars(packed.data(), end, size);
    const auto rest = static_cast<std::size_t>(end - at);
    check(error == std::errc{} && rest > 0 && *at == ':' && size < rest,
          "a message of several texts is damaged");
    texts.emplace_back(at + 1, size);
    packed = packed.substr(packed.size() - rest + 1 + size);
  }
  return texts;
}

}  // namespace trireme
