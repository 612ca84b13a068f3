#pragma once

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

namespace trireme::testing {

/// Reports new entries of an existing folder.
class Watch {
 public:
  explicit Watch(const std::string& folder) : descriptor_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    inotify_add_watch(descriptor_, folder.c_str(), IN_CREATE);
  }
  ~Watch() { close(descriptor_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Number of new folders with this ending within that time; returns at the first ones.
  int made(const std::string& ending, int milliseconds) const {
    pollfd p{descriptor_, POLLIN, 0};
    if (poll(&p, 1, milliseconds) <= 0) return 0;
    alignas(inotify_event) std::array<char, 4096> buffer{};
    const auto bytes = read(descriptor_, buffer.data(), buffer.size());
    int found = 0;
    for (ssize_t at = 0; at < bytes;) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const std::string name = buffer.data() + at + sizeof event;
      if ((event.mask & IN_ISDIR) != 0 && name.ends_with(ending)) ++found;
      at += static_cast<ssize_t>(sizeof event + event.len);
    }
    return found;
  }

 private:
  int descriptor_;
};

}  // namespace trireme::testing
