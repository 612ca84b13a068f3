#include <trireme/base/text.hpp>
#include <trireme/checkpoint/folders.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

namespace trireme::checkpoint {
namespace {

constexpr std::string_view prefix = "step_";
constexpr std::size_t digits = 8;

}  // namespace

std::string folder_name(std::int64_t step) {
  const std::string number = text(step);
  return text(prefix, std::string(digits - std::min(digits, number.size()), '0'), number);
}

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc{} || at != end || folder_name(step) != name) return std::nullopt;
  return step;
}

std::vector<std::string> folders_in(const std::string& directory) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(directory, missing)) {
    auto name = entry.path().filename().string();
    if (const auto step = step_of(name); step && entry.is_directory())
      found.emplace_back(*step, std::move(name));
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [step, name] : found) names.push_back(std::move(name));
  return names;
}

}  // namespace trireme::checkpoint
