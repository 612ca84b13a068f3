#include <trireme/data/token_source.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/megatron_file.hpp>
#include <trireme/data/token_file.hpp>

#include <filesystem>

namespace trireme::data {
namespace {

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

void TokenSource::mask(std::int64_t, std::span<std::int32_t>) const {}

std::int64_t TokenSource::counted(std::int64_t, std::int64_t count) const {
  return count;
}

void TokenSource::read_document_images(std::int64_t, std::span<std::int64_t>) const {
  throw Error(text(path(), ": has no images"));
}

void TokenSource::read_images(std::int64_t, std::span<std::uint8_t>) const {
  throw Error(text(path(), ": has no images"));
}

std::unique_ptr<TokenSource> open_tokens(const std::string& path, std::int64_t vocabulary) {
  if (path.ends_with(".idx"))
    return std::make_unique<MegatronFile>(path.substr(0, path.size() - 4), vocabulary);
  if (!is_file(path) && is_file(path + ".idx"))
    return std::make_unique<MegatronFile>(path, vocabulary);
  return std::make_unique<TokenFile>(path);
}

bool tokens_exist(const std::string& path) {
  return is_file(path) || is_file(path + ".idx");
}

}  // namespace trireme::data
