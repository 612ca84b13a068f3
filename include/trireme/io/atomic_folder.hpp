#pragma once

#include <functional>
#include <string>

namespace trireme::io {

/// New files of a folder that replace its old files in one step. They are written to a temporary
/// folder beside it; commit() exchanges the two. Without commit() the destructor removes the
/// temporary folder.
class AtomicFolder {
 public:
  /// UsageError if the folder cannot be created.
  explicit AtomicFolder(const std::string& path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Folder for the new files.
  const std::string& temporary_path() const { return temporary_path_; }

  /// Replaces the old files for which `is_replaced` is true, and keeps all other files and folders.
  /// Returns false where the folder can only be changed file by file: it is the working directory
  /// or a mount point, or nothing can be created beside it. `last` is then the file that appears
  /// last and disappears first.
  bool commit(const std::function<bool(const std::string& name)>& is_replaced,
              const std::string& last);

 private:
  void keep_others(const std::function<bool(const std::string&)>& is_replaced) const;
  void replace_files(const std::function<bool(const std::string&)>& is_replaced,
                     const std::string& last) const;

  std::string path_;
  std::string temporary_path_;
  std::string remembered_;  ///< first value of temporary_path_
  bool exists_ = false;
  bool beside_ = true;  ///< the temporary folder is beside the folder, not in it
};

}  // namespace trireme::io
