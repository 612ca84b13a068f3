// Names of sentinels around a tokenizer that has none: a text is split at the names, and its
// parts are encoded and decoded by the tokenizer.
#include <trireme/data/sentinel_names.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::string_view name_begin = "<extra_id_";

std::string sentinel_name(std::int64_t i) {
  return text(name_begin, i, ">");
}

class SentinelTokenizer final : public Tokenizer {
 public:
  SentinelTokenizer(std::unique_ptr<Tokenizer> own, const AddedIds& added)
      : own_(std::move(own)), added_(added) {
    set_before_text(own_->before_text());
  }

  const std::string& name() const override { return own_->name(); }
  std::int64_t vocabulary() const override {
    return std::max(own_->vocabulary(), added_.vocabulary);
  }
  std::int32_t end_of_document() const override { return own_->end_of_document(); }
  std::vector<std::pair<std::string, std::int32_t>> special_tokens() const override {
    auto tokens = own_->special_tokens();
    std::erase_if(tokens, [](const auto& token) { return token.first.starts_with(name_begin); });
    for (std::int64_t i = 0; i < added_.sentinels; ++i)
      tokens.emplace_back(sentinel_name(i), id_of(i));
    return tokens;
  }
  std::unique_ptr<Encoder> encoder(const EncodeOptions& options) const override;
  void decode(std::span<const std::int32_t> ids, std::string& out) const override;

  std::int32_t id_of(std::int64_t sentinel) const {
    return added_.first_sentinel - static_cast<std::int32_t>(sentinel);
  }
  /// Number of the sentinel whose name is at `at` in a text.
  std::optional<std::int64_t> sentinel_at(std::string_view text, std::size_t at) const {
    for (std::int64_t i = 0; i < added_.sentinels; ++i)
      if (text.substr(at).starts_with(sentinel_name(i))) return i;
    return std::nullopt;
  }
  const Tokenizer& own() const { return *own_; }

 private:
  std::unique_ptr<Tokenizer> own_;
  AddedIds added_;
};

/// Encodes the parts of a whole document between names of sentinels.
class SentinelEncoder final : public Encoder {
 public:
  explicit SentinelEncoder(const SentinelTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void feed(std::string_view bytes, std::vector<std::int32_t>&) override { document_ += bytes; }
  void finish(std::vector<std::int32_t>& out) override {
    std::size_t begin = 0;  // of the text after the last name
    const auto encode_up_to = [&](std::size_t end) {
      if (end > begin)
        tokenizer_.own().encode(std::string_view(document_).substr(begin, end - begin), out,
                                {true});
    };
    for (std::size_t at = 0; (at = document_.find(name_begin, at)) != std::string::npos;) {
      const auto sentinel = tokenizer_.sentinel_at(document_, at);
      if (!sentinel) {
        ++at;
        continue;
      }
      encode_up_to(at);
      out.push_back(tokenizer_.id_of(*sentinel));
      begin = at += sentinel_name(*sentinel).size();
    }
    encode_up_to(document_.size());
    document_.clear();
  }

 private:
  const SentinelTokenizer& tokenizer_;
  std::string document_;
};

std::unique_ptr<Encoder> SentinelTokenizer::encoder(const EncodeOptions& options) const {
  if (!options.special_tokens) return own_->encoder(options);
  return std::make_unique<SentinelEncoder>(*this);
}

void SentinelTokenizer::decode(std::span<const std::int32_t> ids, std::string& out) const {
  std::vector<std::int32_t> before, next;  // the tokenizer's own ids
  const auto decode_next = [&] {
    own_->decode_after(before, next, out);
    before.insert(before.end(), next.begin(), next.end());
    next.clear();
  };
  for (const std::int32_t id : ids) {
    const std::int64_t sentinel = added_.first_sentinel - id;
    if (sentinel >= 0 && sentinel < added_.sentinels) {
      decode_next();
      out += sentinel_name(sentinel);
    } else if (id < own_->vocabulary()) {
      next.push_back(id);
    } else {
      check(id < vocabulary(), "token id ", id, " is outside the ", vocabulary(), " ids of ",
            name(), " with sentinels");
    }
  }
  decode_next();
}

}  // namespace

std::unique_ptr<Tokenizer> with_sentinels(std::unique_ptr<Tokenizer> tokenizer,
                                          const AddedIds& added) {
  if (tokenizer->special_token(sentinel_name(0)) == added.first_sentinel) return tokenizer;
  return std::make_unique<SentinelTokenizer>(std::move(tokenizer), added);
}

}  // namespace trireme::data
