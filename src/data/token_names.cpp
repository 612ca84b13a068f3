#include <trireme/data/token_names.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace trireme::data {

void TokenNames::put(const std::string& name, std::int64_t id) {
  ids_.insert_or_assign(name, static_cast<std::int32_t>(id));
  largest_ = std::max(largest_, id);
  longest_ = std::max(longest_, name.size());
}

void TokenNames::add(const std::string& name, std::int64_t id, const std::string& where) {
  check_usage(id < id_limit, where, ": token '", name, "' has id ", id, ", expected below ",
              id_limit);
  const auto [former, is_new] = by_id_.emplace(id, name);
  check_usage(is_new || former->second == name, where, ": tokens '", former->second, "' and '",
              name, "' both have id ", id);
  const std::int32_t known = this->id(name);
  check_usage(known < 0 || known == id, where, ": token '", name, "' has ids ", known, " and ", id);
  put(name, id);
}

void TokenNames::append(const std::string& name, const std::string& where) {
  const std::int64_t id = largest_ + 1;
  check_usage(id < id_limit, where, ": more than ", id_limit, " tokens");
  by_id_.emplace(id, name);
  put(name, id);
}

void TokenNames::finish(const std::string& where) {
  const auto most = 4 * std::ssize(by_id_) + 65536;  // bounds the memory that a few names can use
  check_usage(largest_ < most, where, ": a vocabulary of ", by_id_.size(), " tokens has id ",
              largest_, ", expected below ", most);
  names_.resize(static_cast<std::size_t>(largest_ + 1));
  for (auto& [id, name] : by_id_) names_[static_cast<std::size_t>(id)] = std::move(name);
  by_id_.clear();
}

std::vector<std::int32_t> TokenNames::byte_tokens() const {
  constexpr char digits[] = "0123456789ABCDEF";
  std::vector<std::int32_t> ids(256);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::array<char, 6> name{'<', '0', 'x', digits[byte / 16], digits[byte % 16], '>'};
    ids[byte] = id(std::string_view(name.data(), name.size()));
  }
  return ids;
}

}  // namespace trireme::data
