// Commits checkpoints: completes a partial folder with index, deck and manifest, then renames it.
#include <trireme/checkpoint/writer.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/lineage.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/hdf5_file.hpp>
#include <trireme/io/input_file.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

void expect_created(const std::string& path, const std::error_code& error) {
  const bool full = error == std::errc::no_space_on_device;
  check(!error, path, ": cannot create this folder: ", error.message(),
        full ? "; free some space or write elsewhere" : "");
}

void create_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  expect_created(path, error);
}

void rename_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check(!error, from, ": cannot rename it to ", to, ": ", error.message());
}

/// Renames `partial` to `folder`. Exchanges the two folders atomically if `folder` exists, then
/// removes the old folder. If the file system cannot exchange folders, renames the old folder
/// first.
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

/// Renames the folder first, so that a partly removed folder does not look like a checkpoint.
void remove_checkpoint(const std::string& path) {
  std::error_code error;
  const std::string going = path + ".removed" + partial_suffix;
  fs::remove_all(going, error);
  fs::rename(path, going, error);
  if (!error) fs::remove_all(going, error);
  if (error) log::warn(text(path, ": cannot remove this old checkpoint: ", error.message()));
}

void remove_leftovers(const std::string& directory) {
  std::vector<fs::path> partial;
  for (const auto& entry : entries_of(directory)) {
    const auto name = entry.path().filename().string();
    if ((entry.is_directory() && name.starts_with("step_") && name.ends_with(partial_suffix)) ||
        (name.starts_with(text(latest_name, partial_suffix)) && name != announcement_name))
      partial.push_back(entry.path());
  }
  std::error_code ignored;
  for (const auto& path : partial) fs::remove_all(path, ignored);
}

void expect_shards(const std::string& folder, const std::vector<ShardInfo>& shards,
                   const std::function<void()>& progress) {
  std::set<std::string> seen;
  for (const auto& shard : shards) {
    check(seen.insert(shard.name).second, folder, ": two ranks wrote ", shard.name);
    const std::string path = folder + "/" + shard.name;
    std::error_code error;
    check(fs::exists(path, error), path,
          ": is missing; check that all ranks share this file system");
    const auto bytes = io::InputFile(path).size();
    check(bytes == shard.bytes, path, ": has ", bytes, " bytes, but its writer wrote ", shard.bytes,
          "; check that all ranks share this file system");
    if (progress) progress();
  }
}

void write_files(const std::string& folder, const Files& files) {
  for (const auto& [name, content] : files) io::replace_file(folder + "/" + name, content);
}

void complete(const std::string& folder, Manifest manifest, const Files& files) {
  write_files(folder, files);
  manifest.files.push_back(write_index(folder, manifest));
  io::replace_file(folder + "/" + manifest_name, to_json(manifest));
}

/// Neither counts nor removes checkpoints from which the newest checkpoint does not continue.
void remove_old(const std::string& directory, const std::string& newest, const Retention& kept,
                const std::function<void()>& progress) {
  if (kept.keep <= 0) return;
  const Lineage tip = read_lineage(directory + "/" + newest);
  std::int64_t number = 1;  // the newest checkpoint is the first
  for (const auto& [name, lineage] : members_of(directory)) {
    if (name == newest || !precedes(lineage, tip) || ++number <= kept.keep) continue;
    if (kept.keep_every > 0 && *step_of(name) % kept.keep_every == 0) continue;
    remove_checkpoint(directory + "/" + name);
    if (progress) progress();
  }
}

/// Moves an existing checkpoint `name` aside, unless the checkpoint in `partial` continues its
/// branch.
void keep_other_branch(const std::string& directory, const std::string& name,
                       const std::string& partial) {
  if (!fs::exists(directory + "/" + name)) return;
  try {
    if (precedes(read_lineage(directory + "/" + name), read_lineage(partial))) return;
  } catch (const Error&) {  // the existing checkpoint is damaged
  }
  const std::string folder = move_aside(directory, {name});
  log::warn(text(directory, "/", name, " belongs to another branch and was moved to ", folder));
}

}  // namespace

std::string partial_folder(const std::string& directory, std::int64_t step) {
  return directory + "/" + folder_name(step) + partial_suffix;
}

void prepare_directory(const std::string& directory) {
  create_folder(directory);
  remove_leftovers(directory);
}

std::string begin(const std::string& directory, std::int64_t step) {
  create_folder(directory);
  return begin_inside(directory, step);
}

std::string begin_inside(const std::string& directory, std::int64_t step) {
  check(step >= 0, "cannot write a checkpoint of step ", step);
  remove_leftovers(directory);
  const std::string partial = partial_folder(directory, step);
  std::error_code error;
  fs::create_directory(partial, error);
  expect_created(partial, error);
  return partial;
}

void abandon(const std::string& directory, std::int64_t step) {
  std::error_code ignored;
  fs::remove_all(partial_folder(directory, step), ignored);
}

Manifest manifest_of(const RunState& state, const std::vector<ShardSummary>& summaries) {
  check(state.step >= 0 && state.samples >= 0, "cannot write a checkpoint of step ", state.step,
        " after ", state.samples, " samples");
  Manifest manifest = assemble(summaries);
  manifest.library = "trireme " TRIREME_VERSION;
  manifest.step = state.step;
  manifest.samples = state.samples;
  manifest.layout = state.layout;
  manifest.values = state.values;
  manifest.starts = state.starts;
  for (const auto& [name, content] : files_of(state))
    manifest.files.push_back({name, std::ssize(content), checksum(content.data(), content.size())});
  return manifest;
}

void commit(const std::string& directory, const RunState& state,
            const std::vector<ShardSummary>& summaries, const Retention& retention,
            const std::function<void()>& progress) {
  Manifest manifest;
  try {
    manifest = manifest_of(state, summaries);
  } catch (...) {
    abandon(directory, state.step);
    throw;
  }
  commit(directory, manifest, files_of(state), retention, progress);
}

void commit(const std::string& directory, const Manifest& manifest, const Files& files,
            const Retention& retention, const std::function<void()>& progress) {
  const std::string partial = partial_folder(directory, manifest.step);
  try {
    expect_shards(partial, manifest.shards, progress);
    complete(partial, manifest, files);
  } catch (...) {
    abandon(directory, manifest.step);
    throw;
  }
  const std::string name = folder_name(manifest.step);
  try {
    keep_other_branch(directory, name, partial);
    announce(directory, name);
    move_into_place(partial, directory + "/" + name);
  } catch (...) {
    withdraw(directory);
    abandon(directory, manifest.step);
    throw;
  }
  io::flush_folder(directory);
  write_latest(directory, name);
  withdraw(directory);
  remove_old(directory, name, retention, progress);
}

void commit_part(const std::string& directory, std::int64_t step, const std::string& manifest,
                 const Files& files, const Retention& retention) {
  const std::string partial = partial_folder(directory, step);
  const std::string name = folder_name(step);
  try {
    create_folder(partial);
    write_files(partial, files);
    io::replace_file(partial + "/" + manifest_name, manifest);
    move_into_place(partial, directory + "/" + name);
  } catch (...) {
    abandon_part(directory, step);
    throw;
  }
  remove_old(directory, name, retention, {});
}

void abandon_part(const std::string& directory, std::int64_t step) {
  abandon(directory, step);
  const auto complete = folders_in(directory);
  if (!complete.empty()) remove_old(directory, complete.front(), {1, 0}, {});
}

void write(const std::string& directory, const RunState& state, std::span<const ArrayView> arrays,
           std::int64_t keep, const std::function<void()>& progress) {
  std::vector<SliceView> slices;
  for (const auto& array : arrays)
    slices.push_back({array.name, array.dtype, array.shape, Extents(array.shape.size(), 0),
                      array.shape, array.data});
  const std::string partial = begin(directory, state.step);
  std::vector<ShardSummary> summaries;
  try {
    summaries.push_back(write_shard(partial, 0, slices, progress));
  } catch (...) {
    abandon(directory, state.step);
    throw;
  }
  commit(directory, state, summaries, {keep, 0});
}

namespace {

constexpr std::int64_t index_bytes = 1 << 20;
constexpr std::int64_t index_bytes_per_array = 4096;
constexpr std::int64_t index_bytes_per_part = 256;  // besides a part's names and extents
constexpr std::size_t attribute_limit_bytes = 4096;

using Parts = std::vector<std::vector<io::VirtualSource>>;  // per array

Parts parts_of_arrays(const Manifest& manifest) {
  Parts parts(manifest.arrays.size());
  for (const auto& shard : manifest.shards) {
    const auto datasets = manifest.datasets(shard);
    for (std::size_t i = 0; i < shard.slices.size(); ++i) {
      const Slab& slab = shard.slices[i].slab;
      parts[shard.slices[i].array].push_back({shard.name, datasets[i], slab.offset, slab.extent});
    }
  }
  return parts;
}

std::int64_t estimated_bytes(const Parts& parts) {
  std::int64_t bytes = index_bytes;
  for (const auto& of_array : parts) {
    bytes += index_bytes_per_array;
    for (const auto& part : of_array)
      bytes += index_bytes_per_part + std::ssize(part.file) + std::ssize(part.dataset) +
               64 * std::ssize(part.extent);
  }
  return bytes;
}

}  // namespace

FileInfo write_index(const std::string& folder, const Manifest& manifest) {
  const Parts parts = parts_of_arrays(manifest);
  io::AtomicFile file(folder + "/" + index_name);
  file.probe_space(estimated_bytes(parts));
  auto hdf5 = io::Hdf5File::create(file.temporary_path());
  hdf5.set_attribute("format", known_format);
  hdf5.set_attribute("library", manifest.library);
  hdf5.set_attribute("step", manifest.step);
  hdf5.set_attribute("samples", manifest.samples);
  hdf5.set_attribute("layout",
                     std::string_view(manifest.layout)
                         .substr(0, std::min(manifest.layout.size(), attribute_limit_bytes)));
  for (std::size_t a = 0; a < parts.size(); ++a) {
    const ArrayInfo& array = manifest.arrays[a];
    if (parts[a].empty())  // an array without elements
      hdf5.create_dataset(array.name, array.dtype, array.shape);
    else
      hdf5.create_virtual_dataset(array.name, array.dtype, array.shape, parts[a]);
  }
  hdf5.close_into(file);
  FileInfo info{index_name, io::InputFile(file.temporary_path()).size(),
                io::file_checksum(file.temporary_path())};
  file.commit();
  return info;
}

}  // namespace trireme::checkpoint
