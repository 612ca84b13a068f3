// Reads added tokens, and finds the token that ends documents.
#include <trireme/data/added_tokens.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/data/token_names.hpp>
#include <trireme/data/tokenizer.hpp>

#include <array>

namespace trireme::data {
namespace {

constexpr std::array<const char*, 5> usual_ends{"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                                "[SEP]"};

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonNode& node) {
  std::vector<AddedToken> tokens;
  if (node.json.is_null()) return tokens;
  if (!node.json.is_array()) node.refuse("a list");
  for (std::size_t i = 0; i < node.json.size(); ++i) {
    const JsonNode entry = node[i];
    AddedToken token;
    token.content = entry["content"].string();
    if (token.content.empty()) continue;
    token.special = entry["special"].flag(false);
    token.normalized = entry["normalized"].flag(!token.special);
    token.lstrip = entry["lstrip"].flag(false);
    token.rstrip = entry["rstrip"].flag(false);
    token.single_word = entry["single_word"].flag(false);
    const std::int64_t id = entry["id"].id();
    check_usage(id < TokenNames::id_limit, entry.path, ": token '", token.content, "' has id ", id,
                ", expected below ", TokenNames::id_limit);
    token.id = static_cast<std::int32_t>(id);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::vector<std::string> names_with(const TokenNames& of_model,
                                    const std::vector<AddedToken>& added, const JsonNode& node) {
  std::vector<std::string> names = of_model.names();
  const auto most = 4 * (std::ssize(names) + std::ssize(added)) + 65536;
  for (const AddedToken& token : added) {
    check_usage(token.id < most, node.path, ": token '", token.content, "' has id ", token.id,
                ", expected below ", most, " for this vocabulary");
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= names.size()) names.resize(id + 1);
    check_usage(names[id].empty() || names[id] == token.content, node.path, ": tokens '", names[id],
                "' and '", token.content, "' both have id ", id);
    const std::int32_t known = of_model.id(token.content);
    check_usage(known < 0 || known == token.id, node.path, ": token '", token.content, "' has id ",
                token.id, ", and id ", known, " in model.vocab");
    names[id] = token.content;
  }
  return names;
}

std::vector<LiteralSplitter::Literal> literals_of(const std::vector<AddedToken>& added,
                                                  const EncodeOptions& options, bool normalized) {
  std::vector<LiteralSplitter::Literal> wanted;
  for (const auto& token : added) {
    if (token.normalized != normalized || token.content.empty()) continue;
    wanted.push_back({token.content, token.id, token.special && !options.special_tokens,
                      token.lstrip, token.rstrip, token.single_word});
  }
  return wanted;
}

void add_to(Checksum& sum, const std::vector<AddedToken>& added) {
  for (const auto& token : added) {
    const std::uint64_t size = token.content.size();
    sum.update(&size, sizeof size);
    sum.update(token.content.data(), token.content.size());
    const std::int32_t rest[]{token.id, token.special, token.normalized};
    sum.update(rest, sizeof rest);
    if (!token.lstrip && !token.rstrip && !token.single_word) continue;
    const std::int32_t strips[]{token.lstrip, token.rstrip, token.single_word};
    sum.update(strips, sizeof strips);
  }
}

std::vector<std::pair<std::string, std::int32_t>> special_tokens(
    const std::vector<AddedToken>& added) {
  std::vector<std::pair<std::string, std::int32_t>> found;
  for (const AddedToken& token : added)
    if (token.special) found.emplace_back(token.content, token.id);
  return found;
}

std::int32_t find_end_of_document(const std::vector<AddedToken>& added, const std::string& wanted,
                                  const std::string& where) {
  std::vector<std::string> names(usual_ends.begin(), usual_ends.end());
  if (!wanted.empty()) names = {wanted};
  for (const auto& name : names)
    for (const auto& token : added)
      if (token.special && token.content == name) return token.id;
  std::vector<std::string> known;
  for (const auto& token : added)
    if (token.special && known.size() < 20) known.push_back(token.content);
  throw UsageError(text(where, ": has no special token ", join(names, ", "), " to end documents; ",
                        known.empty() ? "it has no special tokens"
                                      : "choose one of its special tokens: " + join(known, ", ")));
}

}  // namespace trireme::data
