// Compares the tokenizers, token files and kernels of a checkpoint's run and of this job.
#include <trireme/commands/identity.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/commands/images.hpp>
#include <trireme/data/blend.hpp>
#include <trireme/data/instructions.hpp>
#include <trireme/data/token_source.hpp>
#include <trireme/hugging_face/kept_files.hpp>

#include <set>
#include <sstream>
#include <vector>

namespace trireme::commands {
namespace {

constexpr const char* tokenizer_key = "tokenizer";
constexpr const char* end_key = "end_of_document";
constexpr const char* training_key = "data.train";
constexpr const char* answers_key = "answer_ends";
constexpr const char* validation_key = "data.validation";
constexpr const char* kernels_key = "kernels";

using Values = std::map<std::string, std::string>;

/// The value of `key`; "" if there is none.
std::string value_of(const Values& values, const char* key) {
  const auto found = values.find(key);
  return found == values.end() ? "" : found->second;
}

bool same(const checkpoint::Reader& reader, const Identity& identity, const char* key) {
  const std::string stored = value_of(reader.state().values, key);
  return stored.empty() || stored == value_of(identity.values, key);
}

/// The entries of a list: "1 0123…, 2 4567…" has two.
std::vector<std::string> entries(const std::string& list) {
  std::vector<std::string> found;
  std::istringstream words(list);
  for (std::string entry; std::getline(words >> std::ws, entry, ',');) found.push_back(entry);
  return found;
}

void set_answer_ends(Identity& identity, const std::set<std::int64_t>& ends) {
  std::vector<std::string> words;
  for (const std::int64_t id : ends) words.push_back(text(id));
  if (!words.empty()) identity.values[answers_key] = join(words, ", ");
}

/// Remedy for an error message: the override that selects the checkpoint's tokenizer `name`.
std::string kept_tokenizer(const checkpoint::Reader& reader, const std::string& name) {
  if (name == "bytes") return "set data.tokenizer=bytes";
  return text("set data.tokenizer=", reader.folder(), ", which keeps the tokenizer");
}

}  // namespace

Identity identity_of(const deck::Deck& deck) {
  const auto tokenizer = tokenizer_of(deck);
  return {
      {{tokenizer_key, tokenizer->name()}, {end_key, std::to_string(tokenizer->end_of_document())}},
      data::tokenizer_files(deck.config.data.tokenizer)};
}

void add_data(Identity& identity, const TrainingData& training,
              const data::TokenSource* validation) {
  std::string list;
  for (std::size_t i = 0; i < training.files.size(); ++i)
    list += text(i > 0 ? ", " : "", training.weights[i], " ", training.files[i]->fingerprint());
  identity.values[training_key] = list;
  if (const auto images = images_of(training)) set_images(identity.values, *images);
  if (validation != nullptr) identity.values[validation_key] = validation->fingerprint();
}

void add_answer_ends(Identity& identity, const deck::Deck& deck, const TrainingData& training) {
  const auto tokenizer = tokenizer_of(deck);
  std::set<std::int64_t> ends;
  for (const auto& file : training.files) ends.merge(data::answer_ends(*file, *tokenizer));
  set_answer_ends(identity, ends);
}

void set_kernels(Identity& identity, const std::string& kernels) {
  identity.values[kernels_key] = kernels;
}

std::string kernel_difference(const checkpoint::Reader& reader, const Identity& identity) {
  if (same(reader, identity, kernels_key)) return "";
  return text("the steps before ", reader.folder(), " used other kernels (",
              value_of(reader.state().values, kernels_key), ") than this job (",
              value_of(identity.values, kernels_key),
              "): losses agree to rounding, but not bit for bit");
}

std::vector<std::int64_t> answer_ends_of(const checkpoint::Reader& reader) {
  std::vector<std::int64_t> ends;
  for (const std::string& entry : entries(value_of(reader.state().values, answers_key)))
    ends.push_back(std::stoll(entry));
  return ends;
}

void inherit(Identity& identity, const checkpoint::Reader& reader) {
  if (!identity.values.contains(tokenizer_key)) return;
  for (auto& [name, content] : reader.kept_files())
    if (hugging_face::is_kept(name)) identity.files[name] = content;
  const auto before = answer_ends_of(reader);
  std::set<std::int64_t> ends(before.begin(), before.end());
  for (const std::string& entry : entries(value_of(identity.values, answers_key)))
    ends.insert(std::stoll(entry));
  set_answer_ends(identity, ends);
  if (images_of(identity.values).token < 0)
    set_images(identity.values, images_of(reader.state().values));
}

std::string tokenizer_difference(const checkpoint::Reader& reader, const deck::Deck& deck,
                                 const Identity& identity) {
  const std::string before = value_of(reader.state().values, tokenizer_key);
  const std::string now = value_of(identity.values, tokenizer_key);
  if (!before.empty() && before != now)
    return text("checkpoint ", reader.folder(), " was trained with the tokenizer ", before,
                ", but ", deck.cite("data", "tokenizer"), now == "bytes" ? "" : text(" is ", now),
                "; ", kept_tokenizer(reader, before), ", and use token files made with it");
  if (same(reader, identity, end_key)) return "";
  return text("checkpoint ", reader.folder(), " was trained with documents that end with token ",
              value_of(reader.state().values, end_key), ", but with ",
              deck.cite("data", "end_of_document"), " they end with token ",
              value_of(identity.values, end_key), "; set data.end_of_document as in ",
              reader.folder(), "/", checkpoint::deck_name);
}

std::string data_difference(const checkpoint::Reader& reader, const deck::Deck& deck,
                            const Identity& identity) {
  const auto before = entries(value_of(reader.state().values, training_key));
  const auto now = entries(value_of(identity.values, training_key));
  const auto files = data::parse_blend(deck.config.data.train);
  if (before.size() != now.size() || now.size() != files.size()) return "";
  for (std::size_t i = 0; i < now.size(); ++i)
    if (before[i] != now[i])
      return text("checkpoint ", reader.folder(), " was trained on other tokens than ",
                  files[i].path, " (", deck.where("data", "train"),
                  ") holds now; restore the file, or continue on the new tokens with "
                  "data.replaced=true");
  return "";
}

std::string image_difference(const checkpoint::Reader& reader, const deck::Deck& deck,
                             const Identity& identity) {
  const auto found = image_difference(images_of(identity.values), images_of(reader.state().values));
  if (!found) return "";
  return text("the images of ", deck.cite("data", "train"), " ", found->verb, " ", found->now,
              ", but those of checkpoint ", reader.folder(), " ", found->before, "; ",
              found->remedy, ", or continue on these with data.replaced=true");
}

bool same_training_data(const checkpoint::Reader& reader, const Identity& identity) {
  return same(reader, identity, training_key);
}

bool same_validation_data(const checkpoint::Reader& reader, const Identity& identity) {
  return same(reader, identity, validation_key);
}

void expect_same_tokenizer(const checkpoint::Reader& reader, const deck::Deck& deck) {
  const std::string difference = tokenizer_difference(reader, deck, identity_of(deck));
  check_usage(difference.empty(), difference);
}

}  // namespace trireme::commands
