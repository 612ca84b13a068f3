// Owner files are created by link(2), or by exclusive creation on file systems without hard links.
#include <trireme/base/owner_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/checksum.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace trireme {
namespace {

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

OwnerDescriptor::~OwnerDescriptor() {
  if (number_ >= 0) ::close(number_);
}

std::optional<OwnerFile> look_at_owner(const std::string& path, int& error) {
  const OwnerDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  error = file.get() < 0 ? errno : 0;
  if (error != 0) return std::nullopt;
  OwnerFile seen;
  struct stat status {};
  ::fstat(file.get(), &status);
  seen.heartbeat = nanoseconds(status.st_mtim);
  seen.device = status.st_dev;
  seen.number = status.st_ino;
  seen.content.resize(4096);
  const auto bytes = ::pread(file.get(), seen.content.data(), seen.content.size(), 0);
  seen.content.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  seen.locked = ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  return seen;
}

bool is_absent(int error) {
  return error == ENOENT || error == ENOTDIR || error == ESTALE;
}

std::optional<OwnerFile> look_at_owner(const std::string& path) {
  int error = 0;
  auto seen = look_at_owner(path, error);
  check_usage(error == 0 || is_absent(error), path,
              ": cannot read it to learn who owns the folder: ", std::strerror(error));
  return seen;
}

void write_owner(const std::string& path, const std::string& content) {
  const OwnerDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  const bool written =
      file.get() >= 0 && ::write(file.get(), content.data(), content.size()) == std::ssize(content);
  const int error = errno;
  if (file.get() >= 0 && !written) ::unlink(path.c_str());
  if (!written && (error == ENOSPC || error == EDQUOT))
    throw Error(text(path, ": ", std::strerror(error), "; free some space"));
  check_usage(written, path, ": cannot write there: ", std::strerror(error),
              "; a run records its owner in this folder");
  ::fsync(file.get());
}

bool publish_owner(const std::string& source, const std::string& target,
                   const std::string& content) {
  if (::link(source.c_str(), target.c_str()) == 0) return true;
  const int error = errno;
  struct stat status {};  // NFS may have linked and lost its answer
  if (::stat(source.c_str(), &status) == 0 && status.st_nlink == 2) return true;
  if (error == EEXIST) return false;
  const bool has_links =
      error != EPERM && error != ENOTSUP && error != ENOSYS && error != EMLINK && error != EXDEV;
  check_usage(!has_links, target, ": cannot create it: ", std::strerror(error));
  const OwnerDescriptor file(::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0 && errno == EEXIST) return false;
  const bool written =
      file.get() >= 0 && ::write(file.get(), content.data(), content.size()) == std::ssize(content);
  check_usage(written, target, ": cannot write it: ", std::strerror(errno));
  return true;
}

void remove_owner(const std::string& path, const std::string& content) {
  const auto now = look_at_owner(path);
  if (!now || now->content != content) return;
  const std::string aside = path + ".released-" + checksum(content.data(), content.size()).hex();
  if (::rename(path.c_str(), aside.c_str()) != 0) return;
  const auto moved = look_at_owner(aside);  // another job may have taken over in between
  if (moved && moved->content != content) publish_owner(aside, path, moved->content);
  ::unlink(aside.c_str());
}

}  // namespace trireme
