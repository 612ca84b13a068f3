#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <filesystem>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// What the file `latest` names, if that is the name of a checkpoint that is there.
std::optional<std::string> named_latest(const std::string& directory) {
  const std::string path = directory + "/" + latest_name;
  std::error_code missing;
  if (!fs::is_regular_file(path, missing)) return std::nullopt;
  std::string name = io::read_text_file(path);
  name.erase(name.find_last_not_of(" \r\n\t") + 1);
  if (step_of(name) && fs::is_directory(directory + "/" + name, missing)) return name;
  log::warn(text(path, ": names '", name.substr(0, 80), "', which is no checkpoint there"));
  return std::nullopt;
}

bool whole(const std::string& folder) {
  try {
    verify(folder, read_manifest(folder));
    return true;
  } catch (const Error& error) {
    log::warn(text("checkpoint ", folder, " is passed over: ", error.what()));
    return false;
  }
}

}  // namespace

std::optional<std::string> latest(const std::string& directory) {
  auto candidates = folders_in(directory);
  if (const auto named = named_latest(directory)) {
    std::erase(candidates, *named);
    candidates.insert(candidates.begin(), *named);
  }
  for (const auto& name : candidates)
    if (const std::string folder = directory + "/" + name; whole(folder)) return folder;
  return std::nullopt;
}

Reader::Reader(const std::string& folder) : folder_(folder), manifest_(read_manifest(folder)) {
  verify(folder, manifest_);
  state_ = {manifest_.step, manifest_.samples, io::read_text_file(folder + "/" + deck_name)};
  for (const auto& array : manifest_.arrays)
    if (!shards_.contains(array.shard))
      shards_.emplace(array.shard, io::Hdf5File::open(folder + "/" + array.shard));
}

const ArrayInfo* Reader::find(const std::string& name) const {
  const auto found = std::find_if(manifest_.arrays.begin(), manifest_.arrays.end(),
                                  [&](const ArrayInfo& array) { return array.name == name; });
  return found == manifest_.arrays.end() ? nullptr : &*found;
}

void Reader::read(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape,
                  void* out) const {
  read_slice(name, dtype, shape, std::vector<std::int64_t>(shape.size(), 0), shape, out);
}

void Reader::read_slice(const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape,
                        const std::vector<std::int64_t>& offset,
                        const std::vector<std::int64_t>& extent, void* out) const {
  const ArrayInfo* array = find(name);
  check_usage(array != nullptr, folder_, ": holds no array '", name,
              "'; the deck's model is not the one that was saved (", folder_, "/", deck_name, ")");
  check_usage(array->dtype == dtype && array->shape == shape, folder_, ": array '", name, "' is ",
              name_of(array->dtype), " ", shape_text(array->shape), ", expected ", name_of(dtype),
              " ", shape_text(shape), "; the deck's model is not the one that was saved (", folder_,
              "/", deck_name, ")");
  const auto dataset = shards_.at(array->shard).dataset(name);
  check(dataset.dtype() == dtype && dataset.shape() == shape, folder_, "/", array->shard,
        ": dataset '", name, "' is ", name_of(dataset.dtype()), " ", shape_text(dataset.shape()),
        ", the manifest says ", name_of(dtype), " ", shape_text(shape));
  dataset.read(offset, extent, out);
}

}  // namespace trireme::checkpoint
