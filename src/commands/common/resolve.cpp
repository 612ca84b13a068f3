#include <trireme/base/check.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/deck/checks.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace trireme::commands {
namespace {

void expect_same_tokenizer(const deck::Deck& deck, const data::TokenFile& file) {
  check_usage(file.tokenizer() == deck.config.data.tokenizer, file.path(), ": was made with the ",
              "tokenizer ", file.tokenizer(), ", the deck says ", deck.cite("data", "tokenizer"));
}

}  // namespace

void resolve_vocabulary(deck::Deck& deck, const data::TokenFile* tokens) {
  data::make_tokenizer(deck.config.data.tokenizer);
  if (tokens != nullptr) expect_same_tokenizer(deck, *tokens);
  std::int64_t& vocabulary = deck.config.model.vocabulary;
  if (tokens == nullptr) {
    check_usage(vocabulary > 0, deck.file_name,
                ": [model] vocabulary is not given and the token file ", deck.cite("data", "train"),
                " does not exist; give model.vocabulary=... or make the file with ",
                "trireme tokenize");
    return;
  }
  if (vocabulary == 0) vocabulary = tokens->vocabulary();
  check_usage(vocabulary >= tokens->vocabulary(), deck.cite("model", "vocabulary"),
              " is smaller than the ", tokens->vocabulary(), " ids of ", tokens->path(),
              "; choose at least that many");
}

deck::Deck deck_for_ranks(const std::string& path, const std::vector<std::string>& overrides,
                          std::int64_t ranks) {
  deck::Deck deck = deck::load_deck(path, overrides);
  const deck::ParallelConfig& p = deck.config.parallel;
  const std::int64_t written = p.tensor * p.pipeline * std::max<std::int64_t>(1, p.data);
  deck::resolve_parallel(deck, ranks > 0 ? ranks : written);
  std::optional<data::TokenFile> tokens;
  if (std::filesystem::exists(deck.config.data.train)) tokens.emplace(deck.config.data.train);
  resolve_vocabulary(deck, tokens ? &*tokens : nullptr);
  return deck;
}

data::TokenFile open_token_file(const deck::Deck& deck, const std::string& key) {
  const std::string& path =
      key == "validation" ? deck.config.data.validation : deck.config.data.train;
  check_usage(std::filesystem::exists(path), deck.cite("data", key),
              ": there is no such file; make it with ", "trireme tokenize -o ", path, " TEXT...");
  data::TokenFile file(path);
  expect_same_tokenizer(deck, file);
  return file;
}

std::vector<std::int32_t> bytes_of_token(const std::string& tokenizer, std::int64_t vocabulary) {
  const auto t = data::make_tokenizer(tokenizer);
  std::vector<std::int32_t> bytes(static_cast<std::size_t>(vocabulary), 0);
  std::string written;
  for (std::int32_t id = 0; id < std::min(vocabulary, t->vocabulary()); ++id) {
    written.clear();
    t->decode({&id, 1}, written);
    bytes[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(written.size());
  }
  return bytes;
}

}  // namespace trireme::commands
