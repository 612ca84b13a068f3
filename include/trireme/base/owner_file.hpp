#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

/// The operations on owner files of which folder_owner.cpp builds ownership.
namespace trireme {

/// Closes a file's descriptor.
class OwnerDescriptor {
 public:
  explicit OwnerDescriptor(int number = -1) : number_(number) {}
  ~OwnerDescriptor();
  OwnerDescriptor(OwnerDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  OwnerDescriptor& operator=(OwnerDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int get() const { return number_; }

 private:
  int number_;
};

/// An owner file as it is now. Opening it makes NFS fetch its attributes.
struct OwnerFile {
  std::string content;
  std::int64_t heartbeat = 0;  ///< nanoseconds, by the file system's clock
  bool locked = false;
  dev_t device = 0;
  ino_t number = 0;
};

/// Nothing, with an error number, if the file cannot be opened.
std::optional<OwnerFile> look_at_owner(const std::string& path, int& error);
/// Nothing if there is no such file; UsageError if it cannot be read.
std::optional<OwnerFile> look_at_owner(const std::string& path);
/// Whether an error number says that there is no such file.
bool is_absent(int error);

/// Creates a file, which must not exist, and flushes it.
void write_owner(const std::string& path, const std::string& content);
/// Creates `target` with the content of `source`. False if it exists.
bool publish_owner(const std::string& source, const std::string& target,
                   const std::string& content);
/// Removes an owner file with this content and no other.
void remove_owner(const std::string& path, const std::string& content);

}  // namespace trireme
