#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace trireme::testing {

/// Creates the folder `path` and mounts a file system of a few pages on it. An ordinary user needs
/// a system that permits user namespaces.
class SmallDisk {
 public:
  SmallDisk(std::string path, std::int64_t bytes) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    if (set(bytes, 0)) return;
    if (errno == EPERM && enter_namespace() && set(bytes, 0)) return;
    why_not_ = "no file system can be mounted here: " + std::string(std::strerror(errno));
  }
  ~SmallDisk() {
    if (why_not_.empty()) umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  /// The reason why there is no disk; empty if there is one.
  const std::string& why_not() const { return why_not_; }
  bool resize(std::int64_t bytes) { return set(bytes, MS_REMOUNT); }

 private:
  bool set(std::int64_t bytes, unsigned long flags) {
    const std::string options = "mode=0755,size=" + std::to_string(bytes);
    return mount("none", path_.c_str(), "tmpfs", flags, options.c_str()) == 0;
  }

  static bool enter_namespace() {
    const auto user = std::to_string(geteuid());
    const auto group = std::to_string(getegid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " + user + " 1";
    std::ofstream("/proc/self/gid_map") << "0 " + group + " 1";
    return true;
  }

  std::string path_;
  std::string why_not_;
};

}  // namespace trireme::testing
