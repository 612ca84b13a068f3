// Writes shards in sequence under temporary names. commit() removes the old index, renames the
// shards, then writes the new index.
#include <trireme/hugging_face/folder_writer.hpp>

#include <trireme/base/check.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

namespace trireme::hugging_face {
namespace {

std::int64_t bytes_of(const TensorPlan& tensor) {
  return checkpoint::volume(tensor.shape) * size_of(tensor.dtype);
}

void remove_file(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  check(!error, path, ": cannot remove the old file: ", error.message());
}

}  // namespace

std::optional<std::int64_t> parse_size(std::string_view words) {
  constexpr std::int64_t limit = std::int64_t{1} << 60;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), number);
  if (error != std::errc() || number < 1) return std::nullopt;
  std::string_view unit = words.substr(static_cast<std::size_t>(end - words.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  std::int64_t scale = 1;
  for (const char letter : {'K', 'M', 'G', 'T'}) {
    const std::int64_t base = unit.ends_with("iB") ? 1024 : 1000;
    scale *= base;
    const std::string name = text(letter, base == 1024 ? "iB" : "B");
    if (unit != name) continue;
    const bool fits = number <= limit / scale;
    return fits ? std::optional(number * scale) : std::nullopt;
  }
  const bool plain = unit.empty() || unit == "B";
  return plain && number <= limit ? std::optional(number) : std::nullopt;
}

std::vector<ShardPlan> plan_shards(const std::vector<TensorPlan>& tensors,
                                   std::int64_t most_bytes) {
  std::vector<ShardPlan> shards(1);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t bytes = bytes_of(tensors[i]);
    const bool full = most_bytes > 0 && bytes > 0 && shards.back().bytes + bytes > most_bytes;
    if (full && shards.back().last > shards.back().first) shards.push_back({i, i, 0});
    shards.back().last = i + 1;
    shards.back().bytes += bytes;
  }
  return shards;
}

FolderWriter::FolderWriter(const std::string& folder, std::vector<TensorPlan> tensors,
                           std::int64_t most_bytes)
    : folder_(folder), tensors_(std::move(tensors)), shards_(plan_shards(tensors_, most_bytes)) {
  const std::int64_t count = std::ssize(shards_);
  check_usage(count <= shards_limit, folder, ": files of at most ", with_commas(most_bytes),
              " bytes would be ", with_commas(count), ", more than ", shards_limit,
              "; choose a larger size");
  if (count == 1) {
    paths_ = {folder + "/" + single_name};
    return;
  }
  for (std::int64_t i = 1; i <= count; ++i) paths_.push_back(folder + "/" + shard_name(i, count));
  paths_.push_back(folder + "/" + index_name);
  index_ = std::make_unique<io::AtomicFile>(paths_.back());
  std::int64_t all = 0;
  for (const ShardPlan& shard : shards_) all += shard.bytes;
  index_->probe_space(all);
}

void FolderWriter::begin_shard() {
  check(writers_.size() < shards_.size(), folder_, ": more bytes than were planned");
  const ShardPlan& shard = shards_[writers_.size()];
  const std::vector<TensorPlan> tensors(tensors_.begin() + static_cast<std::ptrdiff_t>(shard.first),
                                        tensors_.begin() + static_cast<std::ptrdiff_t>(shard.last));
  writers_.push_back(std::make_unique<SafetensorsWriter>(paths_[writers_.size()], tensors));
  left_ = shard.bytes;
  file_bytes_ += writers_.back()->file_bytes();
}

void FolderWriter::append(const void* data, std::int64_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    if (left_ == 0) begin_shard();
    const std::int64_t now = std::min(bytes, left_);
    if (now > 0) writers_.back()->append(at, now);
    at += now;
    bytes -= now;
    left_ -= now;
  }
}

std::string FolderWriter::index_text() const {
  nlohmann::ordered_json map;
  std::int64_t all = 0;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < shards_.size(); ++i)
    for (std::size_t t = shards_[i].first; t < shards_[i].last; ++t) {
      all += bytes_of(tensors_[t]);
      elements += checkpoint::volume(tensors_[t].shape);
      map[tensors_[t].name] = std::filesystem::path(paths_[i]).filename();
    }
  nlohmann::ordered_json index;
  index["metadata"] = {{"total_parameters", elements}, {"total_size", all}};
  index["weight_map"] = std::move(map);
  return index.dump(2) + "\n";
}

void FolderWriter::commit() {
  // append() does not begin a shard of empty tensors.
  while (writers_.size() < shards_.size() && left_ == 0) begin_shard();
  check(left_ == 0 && writers_.size() == shards_.size(), folder_,
        ": fewer bytes than were planned");
  const std::string index = folder_ + "/" + index_name;
  remove_file(index);
  for (const auto& writer : writers_) writer->commit();
  for (const std::string& path : weight_files(folder_))
    if (std::ranges::find(paths_, path) == paths_.end()) remove_file(path);
  if (!index_) return;
  const std::string content = index_text();
  index_->write(0, content.data(), content.size());
  index_->commit();
}

}  // namespace trireme::hugging_face
