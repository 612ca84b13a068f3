#include <trireme/data/bpe_vocabulary.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/utf8.hpp>

#include <algorithm>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::int64_t id_limit = 1 << 24;

}  // namespace

void BpeVocabulary::add_token(const std::string& name, std::int64_t id, const std::string& where) {
  check_usage(id < id_limit, where, ": token '", name, "' has id ", id, ", expected below ",
              id_limit);
  const auto [former, is_new] = names_.emplace(static_cast<std::int32_t>(id), name);
  check_usage(is_new, where, ": tokens '", former->second, "' and '", name, "' both have id ", id);
  ids_.emplace(name, static_cast<std::int32_t>(id));
  largest_ = std::max(largest_, id);
}

std::int32_t BpeVocabulary::find(std::string_view name, const std::string& where) const {
  const auto found = ids_.find(name);
  check_usage(found != ids_.end(), where, ": token '", name, "' is not in the vocabulary");
  return found->second;
}

void BpeVocabulary::add_merge(std::string_view left, std::string_view right,
                              const std::string& where) {
  const std::string both = std::string(left) + std::string(right);
  merges_.push_back({find(left, where), find(right, where), find(both, where)});
}

void BpeVocabulary::add_merge(std::string_view both, const std::string& where) {
  const std::size_t blank = both.find(' ');
  check_usage(
      blank != std::string_view::npos && both.find(' ', blank + 1) == std::string_view::npos, where,
      ": '", both, "' is not two tokens with a space between them");
  add_merge(both.substr(0, blank), both.substr(blank + 1), where);
}

void BpeVocabulary::add_added(AddedToken token, std::int64_t id, const std::string& where) {
  check_usage(id < id_limit, where, ": token '", token.content, "' has id ", id,
              ", expected below ", id_limit);
  const auto [former, is_new] = names_.emplace(static_cast<std::int32_t>(id), token.content);
  check_usage(former->second == token.content, where, ": tokens '", former->second, "' and '",
              token.content, "' both have id ", id);
  const auto [same, first] = ids_.emplace(token.content, static_cast<std::int32_t>(id));
  check_usage(same->second == id, where, ": token '", token.content, "' has ids ", same->second,
              " and ", id);
  largest_ = std::max(largest_, id);
  token.id = static_cast<std::int32_t>(id);
  added_.push_back(std::move(token));
}

void BpeVocabulary::add_end_of_text() {
  const auto found = ids_.find(std::string_view("<|endoftext|>"));
  if (found != ids_.end())
    added_.push_back({.id = found->second, .content = found->first, .special = true});
}

bool BpeVocabulary::has_all_bytes() const {
  for (int byte = 0; byte < 256; ++byte) {
    const auto character = static_cast<char>(byte);
    if (!ids_.contains(characters_of_bytes(std::string_view(&character, 1)))) return false;
  }
  return true;
}

BpeModel BpeVocabulary::take(const std::string& path) {
  BpeModel model;
  const auto most = 4 * std::ssize(names_) + 65536;  // bounds the memory that few names can cause
  check_usage(largest_ < most, path, ": a vocabulary of ", names_.size(), " tokens has id ",
              largest_, ", expected below ", most);
  model.tokens.resize(static_cast<std::size_t>(largest_ + 1));
  for (const auto& [id, name] : names_)
    model.tokens[static_cast<std::size_t>(id)] = bytes_of_characters(name).value_or(name);
  for (const auto& token : added_) model.tokens[static_cast<std::size_t>(token.id)] = token.content;
  std::sort(added_.begin(), added_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  model.merges = std::move(merges_);
  model.added = std::move(added_);
  return model;
}

}  // namespace trireme::data
