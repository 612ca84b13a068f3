// Exchanges a folder and its replacement, or replaces file by file.
#include <trireme/io/atomic_folder.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>
#include <trireme/io/atomic_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

namespace trireme::io {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : entries_of(folder)) names.push_back(entry.path().filename());
  return names;
}

std::string parent_of(const std::string& folder) {
  const std::string parent = fs::path(folder).parent_path();
  return parent.empty() ? "." : parent;
}

/// Whether the folder can be exchanged with a folder beside it.
bool can_be_exchanged(const std::string& folder) {
  std::error_code error;
  if (fs::equivalent(folder, fs::current_path(error), error)) return false;
  struct stat status {};
  struct stat parent {};
  return ::stat(folder.c_str(), &status) == 0 && ::stat(parent_of(folder).c_str(), &parent) == 0 &&
         status.st_dev == parent.st_dev && ::access(parent_of(folder).c_str(), W_OK | X_OK) == 0;
}

/// The folder's path without trailing slashes, whose last name is neither a link nor "." or "..".
std::string plain_path(const std::string& path) {
  std::error_code error;
  const std::string trimmed = path.substr(0, path.find_last_not_of('/') + 1);
  const fs::path last = fs::path(trimmed).filename();
  const bool plain = !last.empty() && last != "." && last != "..";
  if (plain && !fs::is_symlink(trimmed, error)) return trimmed;
  const fs::path whole = fs::weakly_canonical(path, error);
  check_usage(!error && whole.has_filename(), "'", path, "' does not name a folder");
  return whole;
}

void rename_file(const std::string& from, const std::string& to) {
  const bool renamed = ::rename(from.c_str(), to.c_str()) == 0;
  check(renamed, to, ": cannot rename ", from, " to it: ", std::strerror(errno));
}

}  // namespace

AtomicFolder::AtomicFolder(const std::string& path) : path_(plain_path(path)) {
  std::error_code error;
  exists_ = fs::exists(path_, error);
  check_usage(!exists_ || fs::is_directory(path_), path, ": exists and is not a folder");
  if (!exists_) fs::create_directories(parent_of(path_), error);
  beside_ = !exists_ || can_be_exchanged(path_);
  remove_dead_temporaries(beside_ ? parent_of(path_) : path_);
  temporary_path_ = temporary_name(beside_ ? path_ : path_ + "/model");
  if (!error) fs::create_directory(temporary_path_, error);
  check_usage(!error, path, ": cannot create this folder: ", error.message());
  remember_temporary(remembered_ = temporary_path_);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!temporary_path_.empty()) fs::remove_all(temporary_path_, ignored);
  forget_temporary(remembered_);
}

/// Links or copies the files that are kept from the old folder into the new folder.
void AtomicFolder::keep_others(const std::function<bool(const std::string&)>& is_replaced) const {
  using Options = fs::copy_options;
  for (const std::string& name : names_in(path_)) {
    const fs::path to = fs::path(temporary_path_) / name;
    std::error_code error;
    if (is_replaced(name) || fs::exists(to, error)) continue;
    const Options common = Options::recursive | Options::copy_symlinks;
    const fs::path from = fs::path(path_) / name;
    fs::copy(from, to, common | Options::create_hard_links, error);
    if (error) {  // a file system without hard links
      fs::remove_all(to, error);
      fs::copy(from, to, common, error);
    }
    check(!error, from.string(), ": cannot keep it beside the new files: ", error.message());
  }
}

void AtomicFolder::replace_files(const std::function<bool(const std::string&)>& is_replaced,
                                 const std::string& last) const {
  std::error_code error;
  const std::vector<std::string> fresh = names_in(temporary_path_);
  fs::remove(path_ + "/" + last, error);
  for (const std::string& name : names_in(path_))
    if (is_replaced(name) && std::ranges::find(fresh, name) == fresh.end())
      fs::remove(path_ + "/" + name, error);
  for (const std::string& name : fresh)
    if (name != last) rename_file(temporary_path_ + "/" + name, path_ + "/" + name);
  rename_file(temporary_path_ + "/" + last, path_ + "/" + last);
  flush_folder(path_);
}

bool AtomicFolder::commit(const std::function<bool(const std::string&)>& is_replaced,
                          const std::string& last) {
  if (!beside_) {
    replace_files(is_replaced, last);
    return false;
  }
  if (!exists_) {
    rename_file(temporary_path_, path_);
    temporary_path_.clear();
  } else {
    keep_others(is_replaced);
    const bool exchanged = ::renameat2(AT_FDCWD, temporary_path_.c_str(), AT_FDCWD, path_.c_str(),
                                       RENAME_EXCHANGE) == 0;
    if (!exchanged) {  // not supported by the file system: the old folder is moved away first
      const std::string former = temporary_name(path_);
      rename_file(path_, former);
      rename_file(temporary_path_, path_);
      temporary_path_ = former;
    }
  }
  flush_folder(parent_of(path_));
  return true;
}

}  // namespace trireme::io
