// Learns a BPE: counts words, then merges the most frequent pair until the vocabulary is full.
#include <trireme/data/bpe_trainer.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/unicode.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::int32_t first_byte_id = 1;  // id 0 is the end-of-document token
constexpr std::int64_t smallest = first_byte_id + 256;
constexpr std::int64_t largest_vocabulary = 1 << 24;

using Pair = std::uint64_t;  // left << 32 | right: ordered by the left id, then the right id

Pair pair_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::vector<std::unique_ptr<WordPattern>> gpt2_patterns() {
  std::vector<std::unique_ptr<WordPattern>> patterns;
  patterns.push_back(std::make_unique<WordPattern>(gpt2_pattern, "splitting pattern"));
  return patterns;
}

/// All bytes in the order of their ids, which is the order of their characters.
std::array<unsigned char, 256> bytes_in_order() {
  std::array<unsigned char, 256> bytes;
  for (unsigned i = 0; i < 256; ++i) bytes[i] = static_cast<unsigned char>(i);
  std::sort(bytes.begin(), bytes.end(), [](unsigned char a, unsigned char b) {
    return character_of_byte(a) < character_of_byte(b);
  });
  return bytes;
}

/// A queued pair, the pair's count when it was queued, and words that contained the pair.
struct Candidate {
  std::int64_t count = 0;
  Pair pair = 0;
  std::vector<std::uint32_t> words;
  bool operator<(const Candidate& other) const {  // the largest candidate is merged first
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

/// Merges pairs in the words of the texts. Each merge updates the counts of the pairs that it
/// changes. A queued pair with an outdated count is queued again, unless its current count is 0.
class Merging {
 public:
  Merging(BpeModel& model, std::vector<std::vector<std::int32_t>> words,
          std::vector<std::int64_t> counts)
      : model_(model), words_(std::move(words)), counts_(std::move(counts)) {
    for (std::size_t id = 1; id < model.tokens.size(); ++id)
      ids_.emplace(model.tokens[id], static_cast<std::int32_t>(id));
    Places places;
    for (std::size_t w = 0; w < words_.size(); ++w)
      for (std::size_t i = 0; i + 1 < words_[w].size(); ++i) {
        const Pair pair = pair_of(words_[w][i], words_[w][i + 1]);
        pair_counts_[pair] += counts_[w];
        note(places[pair], w);
      }
    enqueue(places);
  }

  void run(std::int64_t vocabulary) {
    while (std::ssize(model_.tokens) < vocabulary && !queue_.empty()) {
      // The element may be moved from, because it is popped next.
      Candidate top = std::move(const_cast<Candidate&>(queue_.top()));
      queue_.pop();
      const std::int64_t now = pair_counts_[top.pair];
      if (top.count != now) {
        top.count = now;
        if (now > 0) queue_.push(std::move(top));
        continue;
      }
      merge(top);
    }
  }

 private:
  using Places = std::unordered_map<Pair, std::vector<std::uint32_t>>;

  static void note(std::vector<std::uint32_t>& words, std::size_t word) {
    if (words.empty() || words.back() != word) words.push_back(static_cast<std::uint32_t>(word));
  }

  void enqueue(Places& places) {
    for (auto& [pair, words] : places)
      if (const std::int64_t count = pair_counts_[pair]; count > 0)
        queue_.push({count, pair, std::move(words)});
  }

  void merge(const Candidate& top) {
    const auto left = static_cast<std::int32_t>(top.pair >> 32);
    const auto right = static_cast<std::int32_t>(top.pair & 0xFFFFFFFFu);
    std::string bytes = model_.tokens[static_cast<std::size_t>(left)] +
                        model_.tokens[static_cast<std::size_t>(right)];
    // Two merges with the same bytes ("ab" "c" and "a" "bc") give the same token.
    const auto [known, is_new] =
        ids_.emplace(bytes, static_cast<std::int32_t>(model_.tokens.size()));
    if (is_new) model_.tokens.push_back(std::move(bytes));
    model_.merges.push_back({left, right, known->second});
    Places places;
    for (const std::uint32_t w : top.words) merge_in(w, left, right, known->second, places);
    enqueue(places);
  }

  void merge_in(std::uint32_t w, std::int32_t left, std::int32_t right, std::int32_t result,
                Places& places) {
    std::vector<std::int32_t>& word = words_[w];
    const std::int64_t count = counts_[w];
    const auto appears = [&](std::int32_t a, std::int32_t b) {
      pair_counts_[pair_of(a, b)] += count;
      note(places[pair_of(a, b)], w);
    };
    std::size_t kept = 0;  // word[0 … kept) is complete
    for (std::size_t i = 0; i < word.size();) {
      if (i + 1 == word.size() || word[i] != left || word[i + 1] != right) {
        word[kept++] = word[i++];
        continue;
      }
      if (kept > 0) {
        pair_counts_[pair_of(word[kept - 1], left)] -= count;
        appears(word[kept - 1], result);
      }
      if (i + 2 < word.size()) {
        pair_counts_[pair_of(right, word[i + 2])] -= count;
        appears(result, word[i + 2]);
      }
      word[kept++] = result;
      i += 2;
    }
    word.resize(kept);
  }

  BpeModel& model_;
  std::vector<std::vector<std::int32_t>> words_;
  std::vector<std::int64_t> counts_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<Pair, std::int64_t> pair_counts_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

BpeTrainer::BpeTrainer() : patterns_(gpt2_patterns()), splitter_(patterns_, false) {}

void BpeTrainer::count(std::string_view word) {
  const auto found = counts_.find(word);
  if (found != counts_.end())
    ++found->second;
  else
    counts_.emplace(word, 1);
}

void BpeTrainer::feed(std::string_view bytes) {
  splitter_.feed(bytes, [&](std::string_view word) { count(word); });
}

void BpeTrainer::end_document() {
  splitter_.finish([&](std::string_view word) { count(word); });
}

BpeModel BpeTrainer::train(std::int64_t vocabulary,
                           std::span<const std::string_view> special) const {
  const std::int64_t least = smallest + std::ssize(special);
  check_usage(vocabulary >= least && vocabulary <= largest_vocabulary, "a BPE of ", vocabulary,
              " ids, expected ", least, " (the bytes and ",
              special.empty() ? "an end-of-document token) to " : "the special tokens) to ",
              largest_vocabulary);
  BpeModel model;
  const auto add_special = [&](std::string_view name) {
    model.added.push_back(
        {static_cast<std::int32_t>(model.tokens.size()), std::string(name), true, false, false});
    model.tokens.emplace_back(name);
  };
  add_special("<|endoftext|>");
  for (const std::string_view name : special) add_special(name);
  std::array<std::int32_t, 256> id_of_byte;
  for (const unsigned char byte : bytes_in_order()) {
    id_of_byte[byte] = static_cast<std::int32_t>(model.tokens.size());
    model.tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<std::vector<std::int32_t>> words;
  std::vector<std::int64_t> counts;
  for (const auto& [word, count] : counts_) {
    if (word.size() < 2) continue;
    counts.push_back(count);
    auto& ids = words.emplace_back();
    for (const char byte : word) ids.push_back(id_of_byte[static_cast<unsigned char>(byte)]);
  }
  Merging(model, std::move(words), std::move(counts)).run(vocabulary);
  return model;
}

std::string tokenizer_json(const BpeModel& model) {
  using Ordered = nlohmann::ordered_json;
  std::vector<std::string> names;
  std::vector<bool> special(model.tokens.size());
  Ordered added = Ordered::array();
  for (const auto& token : model.added) {
    special[static_cast<std::size_t>(token.id)] = true;
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  for (std::size_t id = 0; id < model.tokens.size(); ++id)
    names.push_back(special[id] ? model.tokens[id] : characters_of_bytes(model.tokens[id]));
  // Writes one token or merge per line.
  std::string vocab;
  for (std::size_t id = 0; id < names.size(); ++id)
    vocab += text(id > 0 ? ",\n" : "\n", "      ", nlohmann::json(names[id]).dump(), ": ", id);
  std::string merges;
  for (std::size_t i = 0; i < model.merges.size(); ++i)
    merges +=
        text(i > 0 ? ",\n" : "\n", "      [",
             nlohmann::json(names[static_cast<std::size_t>(model.merges[i].left)]).dump(), ", ",
             nlohmann::json(names[static_cast<std::size_t>(model.merges[i].right)]).dump(), "]");
  const char* byte_level =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  return text("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n",
              "  \"added_tokens\": ", added.dump(), ",\n  \"normalizer\": null,\n",
              "  \"pre_tokenizer\": ", byte_level, ",\n  \"post_processor\": null,\n",
              "  \"decoder\": ", byte_level, ",\n  \"model\": {\n    \"type\": \"BPE\",\n",
              "    \"dropout\": null,\n    \"unk_token\": null,\n",
              "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n",
              "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n",
              "    \"ignore_merges\": false,\n    \"vocab\": {", vocab,
              "\n    },\n    \"merges\": [", merges, "\n    ]\n  }\n}\n");
}

}  // namespace trireme::data
