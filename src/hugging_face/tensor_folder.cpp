// Opens a folder of safetensors files.
#include <trireme/hugging_face/tensor_folder.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>
#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/strict_json.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

namespace trireme::hugging_face {
namespace {

namespace fs = std::filesystem;

constexpr const char* folder_remedy = "; copy or download the folder again";
constexpr std::string_view extension = ".safetensors";

std::string five_digits(std::int64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
}

/// Whether a name has the form model-DIGITS-of-DIGITS.safetensors.
bool is_shard(std::string_view name) {
  const auto take = [&](std::string_view word) {
    const bool there = name.starts_with(word);
    if (there) name.remove_prefix(word.size());
    return there;
  };
  const auto take_digits = [&] {
    const auto end = std::min(name.find_first_not_of("0123456789"), name.size());
    name.remove_prefix(end);
    return end > 0;
  };
  return take("model-") && take_digits() && take("-of-") && take_digits() && name == extension;
}

/// Whether a name is the name of a safetensors file, without a folder.
bool is_plain(const std::string& name) {
  return name.size() > extension.size() && name.size() <= 255 && name.ends_with(extension) &&
         name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

std::vector<std::string> names_of_shards(const std::map<std::string, std::string>& files) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  return {names.begin(), names.end()};
}

void expect_shards(const std::string& index, const std::string& folder,
                   const std::vector<std::string>& names) {
  Complaints complaints;
  for (const std::string& name : names)
    if (!fs::exists(folder + "/" + name)) complaints.add(name, " is missing");
  for (const std::string& path : weight_files(folder)) {
    const std::string name = fs::path(path).filename();
    if (is_shard(name) && std::ranges::find(names, name) == names.end())
      complaints.add(name, " is not in the index");
  }
  complaints.raise(text(index, ": names ", names.size(), " files"),
                   "copy or download the folder again into an empty folder");
}

void expect_places(const std::string& index, const std::map<std::string, std::string>& places,
                   const std::vector<StoredTensor>& tensors) {
  Complaints complaints;
  std::set<std::string> seen;
  for (const StoredTensor& tensor : tensors) {
    const std::string& name = tensor.info->name;
    const std::string file = fs::path(tensor.file->path()).filename();
    const auto place = places.find(name);
    if (place == places.end())
      complaints.add("tensor '", shortened(name), "' of ", file, " is not in the index");
    else if (place->second != file)
      complaints.add("tensor '", shortened(name), "' is in ", file, ", but the index names ",
                     place->second);
    else
      seen.insert(name);
  }
  for (const auto& [name, file] : places)
    if (!seen.contains(name))
      complaints.add("tensor '", shortened(name), "' is not in ", file, ", which the index names");
  complaints.raise(text(index, ": the index does not match the files"),
                   "copy or download the folder again");
}

}  // namespace

std::string shard_name(std::int64_t number, std::int64_t of) {
  return text("model-", five_digits(number), "-of-", five_digits(of), extension);
}

std::vector<std::string> weight_files(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : entries_of(folder)) {
    const std::string name = entry.path().filename();
    if (name == single_name || name == index_name || is_shard(name))
      paths.push_back(folder + "/" + name);
  }
  std::ranges::sort(paths);
  return paths;
}

std::map<std::string, std::string> parse_shard_index(const std::string& content,
                                                     const std::string& path) {
  const auto index = parse_strict(content, path, {8, "the index", folder_remedy});
  const auto map = index.find("weight_map");
  check_usage(map != index.end() && map->is_object() && !map->empty(), path,
              ": has no weight_map {tensor: file}", folder_remedy);
  std::map<std::string, std::string> places;
  for (const auto& [tensor, file] : map->items()) {
    check_usage(file.is_string() && is_plain(file.get<std::string>()), path, ": weight_map '",
                shortened(tensor), "' is ", shortened(file.dump()),
                ", expected the name of a safetensors file in this folder", folder_remedy);
    places[tensor] = file.get<std::string>();
  }
  return places;
}

TensorFolder::TensorFolder(const std::string& folder) {
  const std::string single = folder + "/" + single_name;
  const std::string index = folder + "/" + index_name;
  const bool sharded = fs::exists(index);
  check_usage(!sharded || !fs::exists(single), folder, ": holds ", single_name, " and ", index_name,
              "; remove the file that does not belong to the model");
  check_usage(sharded || fs::exists(single), single, ": no such file, and no ", index_name,
              " in its folder; transformers' model.save_pretrained(FOLDER) writes them");
  path_ = sharded ? index : single;
  std::map<std::string, std::string> places;
  if (sharded) {
    places = parse_shard_index(io::read_text_file(index, safetensors_header_limit), index);
    const auto names = names_of_shards(places);
    expect_shards(index, folder, names);
    for (const std::string& name : names) files_.emplace_back(folder + "/" + name);
  } else {
    files_.emplace_back(single);
  }
  for (const SafetensorsFile& file : files_)
    for (const TensorInfo& info : file.tensors()) tensors_.push_back({&file, &info});
  if (sharded) expect_places(index, places, tensors_);
}

}  // namespace trireme::hugging_face
