#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/hdf5_file.hpp>
#include <trireme/io/input_file.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t structure_bytes = 1 << 20;  // HDF5's own share of a shard, generously
constexpr std::int64_t structure_bytes_per_array = 4096;

void create_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(!error, path, ": cannot create this folder: ", error.message());
}

void rename_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check(!error, from, ": cannot rename it to ", to, ": ", error.message());
}

/// Renames `partial` to `folder`; one that is there already is exchanged for it in one step and
/// removed. Where a file system cannot exchange, the former one steps aside first, and a run killed
/// in between goes on from the checkpoint before.
void move_into_place(const std::string& partial, const std::string& folder) {
  std::string former = partial;
  if (!fs::exists(folder)) {
    rename_folder(partial, folder);
    return;
  }
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
    former = folder + ".former" + partial_suffix;
    rename_folder(folder, former);
    rename_folder(partial, folder);
  }
  std::error_code ignored;
  fs::remove_all(former, ignored);
}

/// Under another name first: a folder half removed must not look like a checkpoint.
void remove_checkpoint(const std::string& path) {
  std::error_code error;
  const std::string going = path + ".removed" + partial_suffix;
  fs::remove_all(going, error);
  fs::rename(path, going, error);
  if (!error) fs::remove_all(going, error);
  if (error) log::warn(text(path, ": cannot remove this old checkpoint: ", error.message()));
}

void remove_partial_folders(const std::string& directory) {
  std::vector<fs::path> partial;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const auto name = entry.path().filename().string();
    if (entry.is_directory() && name.starts_with("step_") && name.ends_with(partial_suffix))
      partial.push_back(entry.path());
  }
  std::error_code ignored;
  for (const auto& path : partial) fs::remove_all(path, ignored);
}

void check_arrays(std::span<const ArrayView> arrays) {
  std::set<std::string> seen;
  for (const auto& array : arrays) {
    const std::string bounded = "/" + array.name + "/";
    check(bounded.find("//") == std::string::npos && bounded.find("/./") == std::string::npos,
          "array name '", array.name, "', expected words parted by /");
    check(seen.insert(array.name).second, "two arrays are named '", array.name, "'");
    for (const auto extent : array.shape)
      check(extent >= 0, "array '", array.name, "' has the shape ", shape_text(array.shape));
  }
}

/// HDF5 lays the file out and writes its structures; the numbers then go straight to their places,
/// so that a full disk or a slow one is never met inside HDF5 and its lock is held for no longer
/// than the layout takes.
void write_shard(const std::string& path, std::span<const ArrayView> arrays,
                 const std::function<void()>& progress) {
  io::AtomicFile file(path);
  std::int64_t bytes = structure_bytes;
  for (const auto& array : arrays)
    bytes +=
        ArrayInfo{array.name, array.dtype, array.shape, ""}.bytes() + structure_bytes_per_array;
  file.probe_space(bytes);
  std::vector<std::pair<std::int64_t, std::int64_t>> places;  // offset and bytes
  {
    auto hdf5 = io::Hdf5File::create(file.temporary_path());
    for (const auto& array : arrays) {
      const auto dataset = hdf5.create_dataset(array.name, array.dtype, array.shape);
      places.emplace_back(dataset.file_offset(), dataset.bytes());
    }
    hdf5.close();
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto [offset, size] = places[i];
    if (size == 0) continue;
    check(offset >= 0, path, ": HDF5 gave no place to array '", arrays[i].name, "'");
    file.write(offset, arrays[i].data, static_cast<std::size_t>(size));
    if (progress) progress();
  }
  file.commit();
}

Manifest describe(const std::string& folder, const RunState& state,
                  std::span<const ArrayView> arrays, const std::string& shard) {
  Manifest manifest;
  manifest.library = "trireme " TRIREME_VERSION;
  manifest.step = state.step;
  manifest.samples = state.samples;
  for (const auto& name : {shard, std::string(deck_name)}) {
    const std::string path = folder + "/" + name;
    manifest.files.push_back({name, io::InputFile(path).size(), io::file_checksum(path)});
  }
  for (const auto& array : arrays)
    manifest.arrays.push_back({array.name, array.dtype, array.shape, shard});
  return manifest;
}

void remove_old(const std::string& directory, const std::string& newest, std::int64_t keep) {
  if (keep <= 0) return;
  std::int64_t kept = 1;  // the one just written, wherever its step stands
  for (const auto& name : folders_in(directory))
    if (name != newest && ++kept > keep) remove_checkpoint(directory + "/" + name);
}

}  // namespace

void write(const std::string& directory, const RunState& state, std::span<const ArrayView> arrays,
           std::int64_t keep, const std::function<void()>& progress) {
  check(state.step >= 0 && state.samples >= 0, "a checkpoint of step ", state.step, " after ",
        state.samples, " samples");
  check_arrays(arrays);
  create_folder(directory);
  remove_partial_folders(directory);
  const std::string name = folder_name(state.step);
  const std::string folder = directory + "/" + name;
  const std::string partial = folder + partial_suffix;
  create_folder(partial);
  try {
    const std::string shard = "shard_000000.h5";
    write_shard(partial + "/" + shard, arrays, progress);
    io::replace_file(partial + "/" + deck_name, state.deck_toml);
    io::replace_file(partial + "/" + manifest_name,
                     to_json(describe(partial, state, arrays, shard)));
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    throw;
  }
  move_into_place(partial, folder);
  io::flush_folder(directory);
  io::replace_file(directory + "/" + latest_name, name + "\n");
  remove_old(directory, name, keep);
}

}  // namespace trireme::checkpoint
