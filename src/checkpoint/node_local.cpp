// Folders of local checkpoints on a node's disk, the assembly of complete checkpoints from the
// folders of all nodes, and the file `attempt`.
#include <trireme/checkpoint/node_local.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/text.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/verify.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <random>
#include <string_view>
#include <system_error>
#include <tuple>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view folder_prefix = "trireme-";

bool has_size(const std::string& path, std::int64_t bytes) {
  std::error_code error;
  return fs::is_regular_file(path, error) &&
         fs::file_size(path, error) == static_cast<std::uintmax_t>(bytes) && !error;
}

NodeLocalPart part_in(const std::string& folder) {
  const Manifest manifest = read_manifest(folder);
  check(folder.ends_with("/" + checkpoint::folder_name(manifest.step)), folder, "/", manifest_name,
        ": is the manifest of step ", manifest.step);
  verify_file(folder, manifest, deck_name);
  const std::string content = to_json(manifest);
  NodeLocalPart part{manifest.step,
                     checksum(content.data(), content.size()).hex(),
                     std::ssize(manifest.shards),
                     {}};
  for (const ShardInfo& shard : manifest.shards)
    if (has_size(folder + "/" + shard.name, shard.bytes)) part.shards.push_back(shard.name);
  return part;
}

}  // namespace

std::string local_folder(const Attempt& attempt) {
  return text(folder_prefix, attempt.run, "-", attempt.number);
}

std::string local_directory(const std::string& local, const std::string& node) {
  constexpr std::string_view mark = "%node%";
  std::string directory = local;
  for (std::size_t at = 0; (at = directory.find(mark, at)) != std::string::npos; at += node.size())
    directory.replace(at, mark.size(), node);
  return directory;
}

void remove_attempts(const std::string& directory, const std::string& run,
                     std::optional<std::int64_t> kept) {
  const std::string of_run = text(folder_prefix, run, "-");
  for (const auto& entry : readable_entries_of(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(of_run)) continue;
    const auto attempt = parse_count(std::string_view(name).substr(of_run.size()));
    std::error_code ignored;
    if (attempt && attempt != kept) fs::remove_all(entry.path(), ignored);
  }
}

std::vector<NodeLocalPart> parts_in(const std::string& folder, std::vector<std::string>& damage) {
  std::vector<NodeLocalPart> parts;
  std::error_code missing;
  if (!fs::exists(folder, missing)) return parts;
  try {
    for (const std::string& name : folders_in(folder)) {
      try {
        parts.push_back(part_in(folder + "/" + name));
      } catch (const Error& error) {
        damage.emplace_back(error.what());
      }
    }
  } catch (const Error& error) {
    damage.emplace_back(error.what());
  }
  return parts;
}

std::string pack(const NodeLocalPart& part) {
  std::vector<std::string> texts{text(part.step), part.digest, text(part.shard_count)};
  texts.insert(texts.end(), part.shards.begin(), part.shards.end());
  return pack_texts(texts);
}

NodeLocalPart parse_part(const std::string& packed) {
  std::vector<std::string> texts = unpack_texts(packed);
  check(texts.size() >= 3, "a message about a local checkpoint is damaged");
  const auto step = parse_count(texts[0]);
  const auto count = parse_count(texts[2]);
  check(step && count, "a message about a local checkpoint is damaged");
  return {*step, texts[1], *count, {texts.begin() + 3, texts.end()}};
}

std::vector<NodeLocalCheckpoint> assembled(const std::vector<std::vector<NodeLocalPart>>& parts) {
  std::map<std::pair<std::int64_t, std::string>, NodeLocalCheckpoint> known;
  for (std::size_t node = 0; node < parts.size(); ++node)
    for (const NodeLocalPart& part : parts[node]) {
      NodeLocalCheckpoint& whole = known[{part.step, part.digest}];
      whole.step = part.step;
      whole.digest = part.digest;
      whole.shard_count = part.shard_count;
      for (const std::string& shard : part.shards) whole.holders[shard].insert(node);
    }
  std::vector<NodeLocalCheckpoint> all;
  for (auto& [key, whole] : known) all.push_back(std::move(whole));
  std::ranges::stable_sort(all, std::greater(), [](const NodeLocalCheckpoint& c) {
    return std::tuple(c.step, c.complete());
  });
  return all;
}

std::map<std::string, std::size_t> readers(const NodeLocalCheckpoint& checkpoint) {
  std::map<std::size_t, std::size_t> shards_of;
  std::map<std::string, std::size_t> chosen;
  for (const auto& [shard, nodes] : checkpoint.holders) {
    const std::size_t node =
        *std::ranges::min_element(nodes, {}, [&](std::size_t n) { return shards_of[n]; });
    ++shards_of[node];
    chosen[shard] = node;
  }
  return chosen;
}

namespace {

constexpr std::size_t run_digits = 16;
constexpr std::int64_t largest_stride = 1'000'000;

std::string new_run() {
  std::random_device random;
  std::string run;
  while (run.size() < run_digits) run += "0123456789abcdef"[random() % 16];
  return run;
}

}  // namespace

std::optional<std::int64_t> parse_count(std::string_view digits) {
  std::int64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc{} || at != end || number < 0 || text(number) != digits)
    return std::nullopt;
  return number;
}

std::optional<Attempt> read_attempt(const std::string& directory) {
  const std::string path = directory + "/" + attempt_name;
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  std::string content;
  try {
    content = io::read_text_file(path, 256);
  } catch (const UsageError& failure) {
    throw Error(failure.what());
  }
  const std::string run = content.substr(0, content.find(' '));
  std::optional<std::int64_t> number;
  if (content.size() > run.size() && content.ends_with('\n'))
    number = parse_count(
        std::string_view(content).substr(run.size() + 1, content.size() - run.size() - 2));
  check(run.size() == run_digits && number &&
            run.find_first_not_of("0123456789abcdef") == std::string::npos,
        path, ": does not name a run's attempt; its local checkpoints are not used");
  return Attempt{run, *number};
}

Attempt begin_attempt(const std::string& directory) {
  Attempt next{new_run(), 1};
  try {
    if (const auto former = read_attempt(directory)) {
      std::random_device random;
      next = {former->run, former->number + 1 + random() % largest_stride};
    }
  } catch (const Error&) {  // the file is damaged: a new run begins
  }
  io::replace_file(directory + "/" + attempt_name, text(next.run, ' ', next.number, '\n'));
  return next;
}

}  // namespace trireme::checkpoint
