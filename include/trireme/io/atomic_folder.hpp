#pragma once

#include <functional>
#include <string>

namespace trireme::io {

/// New files for a folder. They are written to a temporary folder, which commit() exchanges with
/// the old folder if possible. Without commit(), the destructor removes the temporary folder.
class AtomicFolder {
 public:
  /// UsageError if `path` exists and is not a folder, or if the temporary folder cannot be created.
  explicit AtomicFolder(const std::string& path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Folder for the new files.
  const std::string& temporary_path() const { return temporary_path_; }

  /// Puts the new files into the folder, removes old files for which `is_replaced` is true, and
  /// keeps other old files without a new file of the same name. Returns false if the folder could
  /// only be changed file by file, for example at a mount point; the file `last` is then removed
  /// first and written last.
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
